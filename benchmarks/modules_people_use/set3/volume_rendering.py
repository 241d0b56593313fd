import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """NeRF volume rendering along rays: colour on white background, depth and opacity."""

    def __init__(self, near=2.0, far=6.0, n_samples=128, white_bkgd=True):
        super().__init__()
        t_vals = torch.linspace(0.0, 1.0, n_samples)
        self.register_buffer("z_vals", near * (1.0 - t_vals) + far * t_vals)
        self.white_bkgd = white_bkgd

    def forward(self, raw, rays_d):
        """raw: (R, S, 4) network output, rays_d: (R, 3)"""
        z_vals = self.z_vals.expand(raw.shape[0], -1)
        dists = z_vals[..., 1:] - z_vals[..., :-1]
        dists = torch.cat([dists, torch.full_like(dists[..., :1], 1e10)], dim=-1)
        dists = dists * torch.norm(rays_d[..., None, :], dim=-1)

        rgb = torch.sigmoid(raw[..., :3])
        alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dists)

        trans = torch.cumprod(
            torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], dim=-1), dim=-1
        )[:, :-1]
        weights = alpha * trans

        rgb_map = torch.sum(weights[..., None] * rgb, dim=-2)
        depth_map = torch.sum(weights * z_vals, dim=-1)
        acc_map = torch.sum(weights, dim=-1)
        if self.white_bkgd:
            rgb_map = rgb_map + (1.0 - acc_map[..., None])
        return torch.cat([rgb_map, depth_map[:, None], acc_map[:, None]], dim=-1)


N_rays = 4096
N_samples = 128


def get_inputs():
    return [torch.randn(N_rays, N_samples, 4), torch.randn(N_rays, 3)]


def get_init_inputs():
    return [2.0, 6.0, N_samples]
