import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A decoder's step in a U-Net: bilinear upsampling, the skip beside it, a convolution."""

    def __init__(self, channels, skip_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(channels + skip_channels, out_channels, kernel_size=3, padding=1)

    def forward(self, x, skip):
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return F.leaky_relu(self.conv(torch.cat([x, skip], dim=1)), 0.1)


N = 2
channels, skip_channels, out_channels = 128, 64, 64
size = 64


def get_inputs():
    return [torch.randn(N, channels, size, size), torch.randn(N, skip_channels, 2 * size, 2 * size)]


def get_init_inputs():
    return [channels, skip_channels, out_channels]
