import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
CHANNELS = 3
HEIGHT = 512
WIDTH = 512
WINDOW = 11
SIGMA = 1.5


class Model(nn.Module):
    """Structural dissimilarity loss (1 - SSIM) with a separable Gaussian window."""

    def __init__(self, channels: int, window: int, sigma: float, data_range: float = 1.0):
        super().__init__()
        self.channels = channels
        self.c1 = (0.01 * data_range) ** 2
        self.c2 = (0.03 * data_range) ** 2
        x = torch.arange(window, dtype=torch.float32) - (window - 1) / 2
        g = torch.exp(-x.square() / (2 * sigma * sigma))
        g = g / g.sum()
        self.register_buffer("kernel_x", g.view(1, 1, 1, -1).repeat(channels, 1, 1, 1))
        self.register_buffer("kernel_y", g.view(1, 1, -1, 1).repeat(channels, 1, 1, 1))

    def blur(self, x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(x, self.kernel_x, groups=self.channels)
        return F.conv2d(x, self.kernel_y, groups=self.channels)

    def forward(self, pred: torch.Tensor, target: torch.Tensor):
        mu_p = self.blur(pred)
        mu_t = self.blur(target)
        mu_pp, mu_tt, mu_pt = mu_p * mu_p, mu_t * mu_t, mu_p * mu_t

        var_p = self.blur(pred * pred) - mu_pp
        var_t = self.blur(target * target) - mu_tt
        cov = self.blur(pred * target) - mu_pt

        luminance = (2 * mu_pt + self.c1) / (mu_pp + mu_tt + self.c1)
        contrast = (2 * cov + self.c2) / (var_p + var_t + self.c2)
        ssim = (luminance * contrast).mean(dim=(1, 2, 3))
        return 1.0 - ssim


def get_inputs():
    target = torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)
    pred = (target + 0.1 * torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)).clamp(0, 1)
    return [pred, target]


def get_init_inputs():
    return [CHANNELS, WINDOW, SIGMA]
