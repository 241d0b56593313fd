import torch
import torch.nn as nn


class Model(nn.Module):
    """A convolution whose channels become pixels."""

    def __init__(self, in_channels, out_channels, scale):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels * scale**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(scale)
        self.act = nn.PReLU()

    def forward(self, x):
        return self.act(self.shuffle(self.conv(x)))


in_channels, out_channels, scale = 32, 16, 2


def get_inputs():
    return [torch.randn(4, in_channels, 90, 160)]


def get_init_inputs():
    return [in_channels, out_channels, scale]
