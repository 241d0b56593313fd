"""A module with PyTorch's own layer of attention, as people write it."""

from __future__ import annotations

MULTIHEAD = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        y, _ = self.attention(x, x, x, need_weights=%s)
        return torch.tanh(y) + x

def get_inputs():
    return [torch.randn(2, 20, 32)]
def get_init_inputs():
    return [32, 4]
"""
"""%s: whether the layer gives its weights, for which it takes other steps."""
