import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
CHANNELS = 160
HEIGHT = 64
WIDTH = 64


class Model(nn.Module):
    """BiFPN node: fast normalised fusion of three pyramid levels, then a separable conv."""

    def __init__(self, channels: int, eps: float = 1e-4):
        super().__init__()
        self.eps = eps
        self.weights = nn.Parameter(torch.tensor([1.0, 0.7, 1.3]))
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, channels, 1)
        self.bn = nn.BatchNorm2d(channels, momentum=0.01, eps=1e-3)

    def forward(self, same: torch.Tensor, coarse: torch.Tensor, fine: torch.Tensor) -> torch.Tensor:
        w = F.relu(self.weights)
        w = w / (w.sum() + self.eps)

        up = F.interpolate(coarse, scale_factor=2, mode="nearest")
        down = F.max_pool2d(fine, kernel_size=3, stride=2, padding=1)
        fused = w[0] * same + w[1] * up + w[2] * down
        return self.bn(self.pointwise(self.depthwise(F.silu(fused))))


def get_inputs():
    return [
        torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH),
        torch.randn(BATCH, CHANNELS, HEIGHT // 2, WIDTH // 2),
        torch.randn(BATCH, CHANNELS, HEIGHT * 2, WIDTH * 2),
    ]


def get_init_inputs():
    return [CHANNELS]
