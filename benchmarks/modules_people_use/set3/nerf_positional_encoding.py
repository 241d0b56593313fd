import torch
import torch.nn as nn


class Model(nn.Module):
    """Frequency encoding of 3D sample positions as in NeRF, raw input included."""

    def __init__(self, num_freqs=8, include_input=True):
        super().__init__()
        self.num_freqs = num_freqs
        self.include_input = include_input
        freq_bands = 2.0 ** torch.linspace(0.0, num_freqs - 1, num_freqs)
        self.register_buffer("freq_bands", freq_bands, persistent=False)

    def forward(self, x):
        """x: (n_rays, n_samples, 3) -> (n_rays, n_samples, 3 * (2 * num_freqs + 1))"""
        xb = x[..., None, :] * self.freq_bands[:, None]          # (R, S, L, 3)
        enc = torch.cat([torch.sin(xb), torch.cos(xb)], dim=-1)  # (R, S, L, 6)
        enc = enc.flatten(start_dim=-2)
        if self.include_input:
            enc = torch.cat([x, enc], dim=-1)
        return enc


n_rays = 1024
n_samples = 64


def get_inputs():
    return [torch.randn(n_rays, n_samples, 3)]


def get_init_inputs():
    return [8]
