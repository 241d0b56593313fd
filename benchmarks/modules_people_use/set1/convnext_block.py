import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A ConvNeXt block: depthwise convolution, norm, two pointwise layers, layer scale."""

    def __init__(self, dim, layer_scale=0.1):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)
        x = self.pwconv2(F.gelu(self.pwconv1(self.norm(x))))
        x = (self.gamma * x).permute(0, 3, 1, 2)
        return shortcut + x


batch_size = 4
dim = 96


def get_inputs():
    return [torch.randn(batch_size, dim, 28, 28)]


def get_init_inputs():
    return [dim]
