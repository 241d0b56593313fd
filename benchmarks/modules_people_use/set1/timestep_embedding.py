import math

import torch
import torch.nn as nn


class Model(nn.Module):
    """Sines and cosines of a time, then a small network."""

    def __init__(self, dim: int, max_period: int = 10000):
        super().__init__()
        half = dim // 2
        freqs = torch.exp(-math.log(max_period) * torch.arange(half).float() / half)
        self.register_buffer("freqs", freqs)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, 4 * dim))

    def forward(self, t):
        args = t[:, None] * self.freqs[None]
        return self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))


dim = 320


def get_inputs():
    return [torch.rand(64) * 1000]


def get_init_inputs():
    return [dim]
