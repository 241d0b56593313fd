import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(
        -math.log(max_period) * torch.arange(start=0, end=half, dtype=torch.float32, device=timesteps.device) / half
    )
    args = timesteps[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class Model(nn.Module):
    """Residual block of a diffusion UNet with scale-shift conditioning on the timestep."""

    def __init__(self, channels, out_channels, emb_dim=128, groups=32):
        super().__init__()
        self.emb_dim = emb_dim
        self.time_embed = nn.Sequential(
            nn.Linear(emb_dim, emb_dim * 4),
            nn.SiLU(),
            nn.Linear(emb_dim * 4, emb_dim * 4),
        )
        self.in_layers = nn.Sequential(
            nn.GroupNorm(groups, channels),
            nn.SiLU(),
            nn.Conv2d(channels, out_channels, 3, padding=1),
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb_dim * 4, 2 * out_channels))
        self.out_norm = nn.GroupNorm(groups, out_channels)
        self.out_rest = nn.Sequential(nn.SiLU(), nn.Conv2d(out_channels, out_channels, 3, padding=1))
        if channels == out_channels:
            self.skip_connection = nn.Identity()
        else:
            self.skip_connection = nn.Conv2d(channels, out_channels, 1)

    def forward(self, x, t):
        emb = self.time_embed(timestep_embedding(t, self.emb_dim))
        h = self.in_layers(x)
        emb_out = self.emb_layers(emb)
        while len(emb_out.shape) < len(h.shape):
            emb_out = emb_out[..., None]
        scale, shift = torch.chunk(emb_out, 2, dim=1)
        h = self.out_norm(h) * (1 + scale) + shift
        h = self.out_rest(h)
        return self.skip_connection(x) + h


batch_size = 4
in_channels = 64
out_channels = 128
image_size = 32


def get_inputs():
    return [
        torch.randn(batch_size, in_channels, image_size, image_size),
        torch.randint(0, 1000, (batch_size,)),
    ]


def get_init_inputs():
    return [in_channels, out_channels]
