import math

import torch
import torch.nn as nn


BATCH = 16
IMAGE = 512
LATENT_CH = 192
LATENT = 32
HYPER_CH = 128
HYPER = 8
LMBDA = 0.013


class Model(nn.Module):
    """Rate-distortion loss of a mean-scale hyperprior image codec under uniform noise."""

    def __init__(self, hyper_ch, lmbda, scale_bound=0.11, likelihood_bound=1e-9):
        super().__init__()
        self.lmbda = lmbda
        self.scale_bound = scale_bound
        self.likelihood_bound = likelihood_bound
        self.z_loc = nn.Parameter(0.1 * torch.randn(1, hyper_ch, 1, 1))
        self.z_log_scale = nn.Parameter(0.1 * torch.randn(1, hyper_ch, 1, 1))

    @staticmethod
    def std_normal_cdf(x):
        return 0.5 * torch.erfc(-x * (2 ** -0.5))

    def bits(self, likelihood):
        return -torch.log(likelihood.clamp(min=self.likelihood_bound)).sum() / math.log(2)

    def forward(self, x, x_hat, y, mean, scale, z, y_noise, z_noise):
        num_pixels = x.size(0) * x.size(2) * x.size(3)

        # Gaussian conditional for the latents
        dist = (y + y_noise - mean).abs()
        scale = scale.clamp(min=self.scale_bound)
        upper = self.std_normal_cdf((0.5 - dist) / scale)
        lower = self.std_normal_cdf((-0.5 - dist) / scale)
        y_bpp = self.bits(upper - lower) / num_pixels

        # factorised logistic prior for the hyper latents
        z_centered = z + z_noise - self.z_loc
        inv = torch.exp(-self.z_log_scale)
        z_like = torch.sigmoid((z_centered + 0.5) * inv) - torch.sigmoid((z_centered - 0.5) * inv)
        z_bpp = self.bits(z_like) / num_pixels

        mse = (x - x_hat).pow(2).mean()
        bpp = y_bpp + z_bpp
        loss = self.lmbda * 255.0 ** 2 * mse + bpp
        return loss, bpp, mse


def get_inputs():
    x = torch.rand(BATCH, 3, IMAGE, IMAGE)
    x_hat = x + 0.03 * torch.randn(BATCH, 3, IMAGE, IMAGE)
    mean = torch.randn(BATCH, LATENT_CH, LATENT, LATENT)
    scale = torch.rand(BATCH, LATENT_CH, LATENT, LATENT) * 2.0
    y = mean + scale * torch.randn(BATCH, LATENT_CH, LATENT, LATENT)
    z = 2.0 * torch.randn(BATCH, HYPER_CH, HYPER, HYPER)
    y_noise = torch.rand(BATCH, LATENT_CH, LATENT, LATENT) - 0.5
    z_noise = torch.rand(BATCH, HYPER_CH, HYPER, HYPER) - 0.5
    return [x, x_hat, y, mean, scale, z, y_noise, z_noise]


def get_init_inputs():
    return [HYPER_CH, LMBDA]
