import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, D_MODEL = 8, 1024, 768
D_FF = 3072


class Model(nn.Module):
    """Pre-norm feed-forward block with the squared ReLU of Primer."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.ln = nn.LayerNorm(d_model)
        self.c_fc = nn.Linear(d_model, d_ff, bias=False)
        self.c_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        h = self.c_fc(self.ln(x))
        h = F.relu(h).square()
        return x + self.c_proj(h)


def get_inputs():
    return [torch.randn(B, T, D_MODEL)]


def get_init_inputs():
    return [D_MODEL, D_FF]
