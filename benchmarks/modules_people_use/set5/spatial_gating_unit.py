import torch
import torch.nn as nn


class Model(nn.Module):
    """Spatial gating unit of gMLP: one half of the channels gates the other after a projection over the tokens."""

    def __init__(self, d_ffn, seq_len):
        super().__init__()
        self.norm = nn.LayerNorm(d_ffn)
        self.spatial_proj = nn.Conv1d(seq_len, seq_len, kernel_size=1)
        nn.init.constant_(self.spatial_proj.bias, 1.0)

    def forward(self, x):
        u, v = x.chunk(2, dim=-1)
        v = self.norm(v)
        v = self.spatial_proj(v)
        return u * v


batch_size = 16
seq_len = 196
d_ffn = 768


def get_inputs():
    return [torch.randn(batch_size, seq_len, 2 * d_ffn)]


def get_init_inputs():
    return [d_ffn, seq_len]
