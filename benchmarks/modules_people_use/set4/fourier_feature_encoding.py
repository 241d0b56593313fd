import math

import torch
import torch.nn as nn


class Model(nn.Module):
    """Gaussian Fourier features of coordinates for a neural field."""

    def __init__(self, in_dim: int, num_freqs: int, scale: float = 10.0):
        super().__init__()
        self.register_buffer("B", torch.randn(in_dim, num_freqs) * scale)

    def forward(self, coords: torch.Tensor) -> torch.Tensor:
        proj = 2.0 * math.pi * coords @ self.B
        return torch.cat([torch.sin(proj), torch.cos(proj)], dim=-1)


num_points = 65536
in_dim = 3
num_freqs = 128


def get_inputs():
    return [torch.rand(num_points, in_dim)]


def get_init_inputs():
    return [in_dim, num_freqs, 2.0]
