import torch
import torch.nn as nn


class Model(nn.Module):
    """Deep & Cross Network v2 for click-through rate: embeddings, low-rank cross layers, a deep tower, one logit."""

    def __init__(self, vocab_sizes, embed_dim, n_dense, n_cross, rank, deep_units):
        super().__init__()
        offsets = [0]
        for v in vocab_sizes[:-1]:
            offsets.append(offsets[-1] + v)
        self.register_buffer("offsets", torch.tensor(offsets, dtype=torch.long))
        self.embedding = nn.Embedding(sum(vocab_sizes), embed_dim)

        width = len(vocab_sizes) * embed_dim + n_dense
        self.cross_v = nn.ModuleList([nn.Linear(width, rank, bias=False) for _ in range(n_cross)])
        self.cross_u = nn.ModuleList([nn.Linear(rank, width) for _ in range(n_cross)])

        layers, d = [], width
        for u in deep_units:
            layers += [nn.Linear(d, u), nn.ReLU(inplace=True)]
            d = u
        self.deep = nn.Sequential(*layers)
        self.out = nn.Linear(width + d, 1)

    def forward(self, dense, categorical):
        emb = self.embedding(categorical + self.offsets).flatten(start_dim=1)
        x0 = torch.cat([emb, torch.log1p(dense)], dim=1)
        xl = x0
        for v, u in zip(self.cross_v, self.cross_u):
            xl = x0 * u(v(xl)) + xl
        both = torch.cat([xl, self.deep(x0)], dim=1)
        return self.out(both).squeeze(1)


batch_size = 2048
vocab_sizes = [20000, 10000, 4000, 1000, 1000, 300, 100, 50, 24, 7]
embed_dim = 32
n_dense = 16


def get_inputs():
    columns = [torch.randint(0, v, (batch_size,)) for v in vocab_sizes]
    return [20.0 * torch.rand(batch_size, n_dense), torch.stack(columns, dim=1)]


def get_init_inputs():
    return [vocab_sizes, embed_dim, n_dense, 3, 64, [256, 128]]
