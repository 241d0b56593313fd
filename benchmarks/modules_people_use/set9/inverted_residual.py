import torch
import torch.nn as nn


BATCH = 128
CHANNELS = 24
EXPANSION = 6
HEIGHT = 56
WIDTH = 56


def frozen_norm(channels):
    norm = nn.BatchNorm2d(channels)
    norm.weight.data.copy_(1.0 + 0.1 * torch.randn(channels))
    norm.bias.data.copy_(0.1 * torch.randn(channels))
    norm.running_mean.copy_(0.1 * torch.randn(channels))
    norm.running_var.copy_(0.5 + torch.rand(channels))
    return norm


class Model(nn.Module):
    """Inverted residual block of MobileNetV2 at inference."""

    def __init__(self, channels, expansion):
        super().__init__()
        hidden = channels * expansion
        self.block = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False),
            frozen_norm(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
            frozen_norm(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, channels, 1, bias=False),
            frozen_norm(channels),
        )
        self.eval()

    def forward(self, x):
        return x + self.block(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, EXPANSION]
