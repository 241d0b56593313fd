import torch
import torch.nn as nn


BATCH = 65536
FIELD_SIZES = [
    1460,
    583,
    100000,
    60000,
    305,
    24,
    12517,
    633,
    3,
    93145,
    5683,
    80000,
    3194,
    27,
    14992,
    50000,
    10,
    5652,
    2173,
    4,
    70000,
    18,
    15,
    28618,
    105,
    14257,
]


class Model(nn.Module):
    """Linear part of a factorization machine: one weight per categorical value, summed over the fields."""

    def __init__(self, field_sizes):
        super().__init__()
        sizes = torch.tensor(field_sizes, dtype=torch.int64)
        self.register_buffer("offsets", torch.cumsum(sizes, 0) - sizes)
        self.weight = nn.Embedding(int(sizes.sum()), 1)
        nn.init.normal_(self.weight.weight, std=0.1)
        self.bias = nn.Parameter(torch.randn(1))

    def forward(self, ids):
        return self.weight(ids + self.offsets).sum(dim=1) + self.bias


def get_inputs():
    columns = [torch.randint(0, size, (BATCH,)) for size in FIELD_SIZES]
    return [torch.stack(columns, dim=1)]


def get_init_inputs():
    return [FIELD_SIZES]
