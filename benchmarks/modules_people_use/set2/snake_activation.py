import torch
import torch.nn as nn


class Model(nn.Module):
    """Snake activation with a learned frequency and magnitude per channel (log scale), as in BigVGAN vocoders."""

    def __init__(self, channels):
        super().__init__()
        self.log_alpha = nn.Parameter(0.3 * torch.randn(channels))
        self.log_beta = nn.Parameter(0.3 * torch.randn(channels))
        self.eps = 1e-9

    def forward(self, x):
        alpha = self.log_alpha.exp().view(1, -1, 1)
        beta = self.log_beta.exp().view(1, -1, 1)
        return x + (1.0 / (beta + self.eps)) * torch.sin(alpha * x).pow(2)


batch_size = 8
channels = 256
samples = 6000


def get_inputs():
    return [torch.randn(batch_size, channels, samples)]


def get_init_inputs():
    return [channels]
