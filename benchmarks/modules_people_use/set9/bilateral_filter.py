import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 8
HEIGHT = 480
WIDTH = 640
KERNEL = 7
SIGMA_SPACE = 2.0
SIGMA_DEPTH = 0.08


class Model(nn.Module):
    """Edge-preserving smoothing of depth maps by a bilateral filter."""

    def __init__(self, kernel, sigma_space, sigma_depth):
        super().__init__()
        self.kernel = kernel
        self.pad = kernel // 2
        self.depth_factor = -0.5 / sigma_depth**2
        axis = torch.arange(kernel, dtype=torch.float32) - self.pad
        distance = axis[:, None] ** 2 + axis[None, :] ** 2
        spatial = -0.5 * distance / sigma_space**2
        self.register_buffer("log_spatial", spatial.reshape(1, kernel * kernel, 1))

    def forward(self, depth):
        padded = F.pad(depth, [self.pad] * 4, mode="reflect")
        patches = F.unfold(padded, self.kernel)
        difference = patches - depth.flatten(2)
        weight = torch.exp(difference.square() * self.depth_factor + self.log_spatial)
        smooth = (weight * patches).sum(dim=1) / weight.sum(dim=1)
        return smooth.view_as(depth)


def get_inputs():
    ramp = torch.linspace(0.8, 4.0, WIDTH).expand(BATCH, 1, HEIGHT, WIDTH)
    steps = torch.randint(0, 3, (BATCH, 1, HEIGHT // 16, WIDTH // 16)).float()
    steps = F.interpolate(steps, scale_factor=16.0, mode="nearest")
    return [ramp + 0.5 * steps + 0.03 * torch.randn(BATCH, 1, HEIGHT, WIDTH)]


def get_init_inputs():
    return [KERNEL, SIGMA_SPACE, SIGMA_DEPTH]
