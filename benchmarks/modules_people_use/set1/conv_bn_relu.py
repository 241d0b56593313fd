import torch
import torch.nn as nn


class Model(nn.Module):
    """A convolution with its batch norm, as a trained network runs it."""

    def __init__(self, in_channels, out_channels, kernel_size=3, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, out_channels, kernel_size, stride, kernel_size // 2, bias=False
        )
        self.bn = nn.BatchNorm2d(out_channels).eval()

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


N, C_IN, C_OUT, H, W = 8, 64, 128, 56, 56


def get_inputs():
    return [torch.randn(N, C_IN, H, W)]


def get_init_inputs():
    return [C_IN, C_OUT]
