import torch
import torch.nn as nn
from typing import List


class Model(nn.Module):
    """DLRM feature interaction: bottom layer on dense features, embedding look-ups, pairwise dot products."""

    def __init__(self, table_sizes: List[int], num_dense: int, dim: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, dim) for n in table_sizes)
        self.bottom = nn.Linear(num_dense, dim)
        num_features = len(table_sizes) + 1
        li, lj = torch.tril_indices(num_features, num_features, offset=-1)
        self.register_buffer("li", li)
        self.register_buffer("lj", lj)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bottom(dense))
        ly = [table(sparse[:, k]) for k, table in enumerate(self.tables)]
        stacked = torch.stack([x] + ly, dim=1)
        z = torch.bmm(stacked, stacked.transpose(1, 2))
        pairs = z[:, self.li, self.lj]
        return torch.cat([x, pairs], dim=1)


BATCH = 4096
TABLES = [10000, 5000, 2000, 1000, 500, 200, 100, 50]
DENSE = 13
DIM = 64


def get_inputs():
    sparse = torch.stack([torch.randint(0, n, (BATCH,)) for n in TABLES], dim=1)
    return [torch.rand(BATCH, DENSE), sparse]


def get_init_inputs():
    return [TABLES, DENSE, DIM]
