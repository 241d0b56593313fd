import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
CHANNELS = 64
LENGTH = 16_384
KERNEL = 7
DILATIONS = (1, 3, 5)


class Model(nn.Module):
    """Dilated residual block of a HiFi-GAN style vocoder generator."""

    def __init__(self, channels: int, kernel_size: int, dilations: tuple, slope: float = 0.1):
        super().__init__()
        self.slope = slope
        self.dilated = nn.ModuleList(
            nn.Conv1d(
                channels, channels, kernel_size, dilation=d, padding=d * (kernel_size - 1) // 2
            )
            for d in dilations
        )
        self.plain = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel_size, padding=(kernel_size - 1) // 2)
            for _ in dilations
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv1, conv2 in zip(self.dilated, self.plain):
            h = conv1(F.leaky_relu(x, self.slope))
            h = conv2(F.leaky_relu(h, self.slope))
            x = x + h
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS, KERNEL, DILATIONS]
