import torch
import torch.nn as nn
import torch.nn.functional as F

FIELD_DIMS = [5000] * 39
EMBED_DIM = 16
ATTN_DIM = 16
BATCH = 4096


class Model(nn.Module):
    """Attentional factorization machine for click prediction."""

    def __init__(self, field_dims, embed_dim, attn_size):
        super().__init__()
        n = len(field_dims)
        self.embedding = nn.Embedding(sum(field_dims), embed_dim)
        self.linear = nn.Embedding(sum(field_dims), 1)
        self.bias = nn.Parameter(torch.zeros(1))
        self.attention = nn.Linear(embed_dim, attn_size)
        self.projection = nn.Linear(attn_size, 1)
        self.fc = nn.Linear(embed_dim, 1)
        offsets = torch.tensor([0] + field_dims[:-1]).cumsum(0)
        self.register_buffer("offsets", offsets)
        row, col = torch.triu_indices(n, n, offset=1)
        self.register_buffer("row", row)
        self.register_buffer("col", col)

    def forward(self, x):
        x = x + self.offsets
        e = self.embedding(x)
        p, q = e[:, self.row], e[:, self.col]
        inner_product = p * q
        attn_scores = F.relu(self.attention(inner_product))
        attn_scores = F.softmax(self.projection(attn_scores), dim=1)
        attn_output = torch.sum(attn_scores * inner_product, dim=1)
        logit = self.linear(x).sum(dim=1) + self.bias + self.fc(attn_output)
        return torch.sigmoid(logit.squeeze(1))


def get_inputs():
    return [torch.randint(0, FIELD_DIMS[0], (BATCH, len(FIELD_DIMS)))]


def get_init_inputs():
    return [FIELD_DIMS, EMBED_DIM, ATTN_DIM]
