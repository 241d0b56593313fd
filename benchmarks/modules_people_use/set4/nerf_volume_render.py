import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Alpha compositing of NeRF samples along rays on a white background."""

    def __init__(self, white_bkgd=True):
        super().__init__()
        self.white_bkgd = white_bkgd

    def forward(self, raw, z_vals, rays_d):
        # raw: [num_rays, num_samples, 4], z_vals: [num_rays, num_samples + 1], rays_d: [num_rays, 3]
        dists = z_vals[..., 1:] - z_vals[..., :-1]
        dists = dists * torch.norm(rays_d[..., None, :], dim=-1)

        rgb = torch.sigmoid(raw[..., :3])
        alpha = 1. - torch.exp(-F.relu(raw[..., 3]) * dists)
        ones = torch.ones((alpha.shape[0], 1), device=alpha.device)
        trans = torch.cumprod(torch.cat([ones, 1. - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * trans

        rgb_map = torch.sum(weights[..., None] * rgb, -2)
        if self.white_bkgd:
            acc_map = torch.sum(weights, -1)
            rgb_map = rgb_map + (1. - acc_map[..., None])
        return rgb_map, weights


num_rays = 16384
num_samples = 128
near, far = 2.0, 6.0


def get_inputs():
    return [
        torch.randn(num_rays, num_samples, 4),
        torch.cumsum(torch.rand(num_rays, num_samples + 1), dim=-1) * ((far - near) / num_samples) + near,
        torch.randn(num_rays, 3),
    ]


def get_init_inputs():
    return []
