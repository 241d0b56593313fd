import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Composites densities and colours sampled along rays into RGB, depth and opacity (NeRF)."""

    def __init__(self, white_background=True):
        super().__init__()
        self.white_background = white_background

    def forward(self, raw, z_vals, rays_d):
        # raw: (R, S, 4), z_vals: (R, S), rays_d: (R, 3)
        dists = z_vals[..., 1:] - z_vals[..., :-1]
        dists = torch.cat([dists, torch.full_like(dists[..., :1], 1e10)], dim=-1)
        dists = dists * torch.norm(rays_d[..., None, :], dim=-1)

        rgb = torch.sigmoid(raw[..., :3])
        sigma = F.relu(raw[..., 3])
        alpha = 1.0 - torch.exp(-sigma * dists)
        ones = torch.ones_like(alpha[..., :1])
        transmittance = torch.cumprod(torch.cat([ones, 1.0 - alpha + 1e-10], dim=-1), dim=-1)[..., :-1]
        weights = alpha * transmittance

        rgb_map = torch.sum(weights[..., None] * rgb, dim=-2)
        depth_map = torch.sum(weights * z_vals, dim=-1, keepdim=True)
        acc_map = torch.sum(weights, dim=-1, keepdim=True)
        if self.white_background:
            rgb_map = rgb_map + (1.0 - acc_map)
        return torch.cat([rgb_map, depth_map, acc_map], dim=-1)


n_rays = 16384
n_samples = 128
near, far = 2.0, 6.0


def get_inputs():
    raw = torch.randn(n_rays, n_samples, 4)
    z, _ = torch.sort(near + (far - near) * torch.rand(n_rays, n_samples), dim=-1)
    return [raw, z, torch.randn(n_rays, 3)]


def get_init_inputs():
    return [True]
