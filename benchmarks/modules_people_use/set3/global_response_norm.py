import torch
import torch.nn as nn


class Model(nn.Module):
    """Global Response Normalization layer of ConvNeXt V2 (channels last)."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.zeros(1, 1, 1, dim))
        self.beta = nn.Parameter(torch.zeros(1, 1, 1, dim))
        nn.init.trunc_normal_(self.gamma, std=0.5)
        nn.init.trunc_normal_(self.beta, std=0.1)

    def forward(self, x):
        Gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        Nx = Gx / (Gx.mean(dim=-1, keepdim=True) + self.eps)
        return self.gamma * (x * Nx) + self.beta + x


batch = 16
height = 28
width = 28
dim = 768


def get_inputs():
    return [torch.randn(batch, height, width, dim)]


def get_init_inputs():
    return [dim]
