import torch
import torch.nn as nn


class Model(nn.Module):
    """Turns pairs of channels of the queries by their position."""

    def __init__(self, head_dim, base=10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))
        self.register_buffer("inv_freq", inv_freq)

    def forward(self, q):
        positions = torch.arange(q.shape[2], device=q.device, dtype=q.dtype)
        angles = torch.outer(positions, self.inv_freq)
        angles = torch.cat((angles, angles), dim=-1)
        half = q.shape[-1] // 2
        turned = torch.cat((-q[..., half:], q[..., :half]), dim=-1)
        return q * angles.cos() + turned * angles.sin()


batch, heads, length, head_dim = 4, 16, 512, 64


def get_inputs():
    return [torch.randn(batch, heads, length, head_dim)]


def get_init_inputs():
    return [head_dim]
