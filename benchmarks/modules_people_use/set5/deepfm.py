import torch
import torch.nn as nn


class Model(nn.Module):
    """DeepFM click model: linear terms, factorisation machine and MLP over shared field embeddings."""

    def __init__(self, num_fields, field_size, embed_dim, num_dense, hidden=(256, 128)):
        super().__init__()
        self.embedding = nn.Embedding(num_fields * field_size, embed_dim)
        self.linear = nn.Embedding(num_fields * field_size, 1)
        nn.init.normal_(self.embedding.weight, std=0.1)
        nn.init.normal_(self.linear.weight, std=0.1)
        self.dense_linear = nn.Linear(num_dense, 1)
        self.register_buffer("offsets", torch.arange(num_fields) * field_size)
        layers = []
        width = num_fields * embed_dim + num_dense
        for h in hidden:
            layers += [nn.Linear(width, h), nn.ReLU()]
            width = h
        layers.append(nn.Linear(width, 1))
        self.mlp = nn.Sequential(*layers)

    def forward(self, sparse_ids, dense):
        ids = sparse_ids + self.offsets
        embed = self.embedding(ids)  # [B, fields, dim]

        first_order = self.linear(ids).sum(dim=1) + self.dense_linear(dense)
        square_of_sum = embed.sum(dim=1).pow(2)
        sum_of_square = embed.pow(2).sum(dim=1)
        fm = 0.5 * (square_of_sum - sum_of_square).sum(dim=1, keepdim=True)
        deep = self.mlp(torch.cat([embed.flatten(1), dense], dim=1))
        return torch.sigmoid(first_order + fm + deep).squeeze(1)


batch_size = 8192
num_fields = 26
field_size = 5000
embed_dim = 10
num_dense = 13


def get_inputs():
    return [torch.randint(0, field_size, (batch_size, num_fields)), torch.rand(batch_size, num_dense)]


def get_init_inputs():
    return [num_fields, field_size, embed_dim, num_dense]
