import torch
import torch.nn as nn


BATCH = 32
TOKENS = 256
DIM = 1152


class Model(nn.Module):
    """DiT adaLN-Zero glue: gated residual add, then layer norm modulated by the condition."""

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)

    def forward(self, x, branch, gate, shift, scale):
        x = x + gate.unsqueeze(1) * branch
        h = self.norm(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
        return x, h


def get_inputs():
    x = torch.randn(BATCH, TOKENS, DIM)
    branch = torch.randn(BATCH, TOKENS, DIM)
    gate = torch.randn(BATCH, DIM) * 0.2
    shift = torch.randn(BATCH, DIM) * 0.2
    scale = torch.randn(BATCH, DIM) * 0.2
    return [x, branch, gate, shift, scale]


def get_init_inputs():
    return [DIM]
