import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """The gated feed-forward layer of a transformer."""

    def __init__(self, hidden_size, intermediate_size):
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


hidden_size = 1024
intermediate_size = 2816


def get_inputs():
    return [torch.randn(4, 256, hidden_size)]


def get_init_inputs():
    return [hidden_size, intermediate_size]
