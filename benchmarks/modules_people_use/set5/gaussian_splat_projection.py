import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """EWA projection of 3D Gaussians to the image plane: pixel centres, inverse 2D covariances, radii and depths."""

    def __init__(self, width, height, focal, camera_distance=4.0, near=0.2):
        super().__init__()
        self.width = width
        self.height = height
        self.focal = focal
        self.near = near
        viewmat = torch.eye(4)
        viewmat[:3, :3] = torch.tensor([[0.8, 0.0, 0.6], [0.0, 1.0, 0.0], [-0.6, 0.0, 0.8]])
        viewmat[2, 3] = camera_distance
        self.register_buffer("viewmat", viewmat)

    def build_covariance(self, log_scales, quats):
        w, x, y, z = F.normalize(quats, dim=-1).unbind(dim=-1)
        R = torch.stack(
            [
                1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
                2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
            ],
            dim=-1,
        ).view(-1, 3, 3)  # fmt: skip
        M = R * log_scales.exp().unsqueeze(1)
        return M @ M.transpose(1, 2)

    def forward(self, means, log_scales, quats):
        R = self.viewmat[:3, :3]
        t = means @ R.T + self.viewmat[:3, 3]
        tz = t[:, 2].clamp(min=self.near)
        lim_x = 1.3 * 0.5 * self.width / self.focal
        lim_y = 1.3 * 0.5 * self.height / self.focal
        tx = (t[:, 0] / tz).clamp(-lim_x, lim_x) * tz
        ty = (t[:, 1] / tz).clamp(-lim_y, lim_y) * tz

        zero = torch.zeros_like(tz)
        row_x = torch.stack([self.focal / tz, zero, -self.focal * tx / tz**2], dim=-1)
        row_y = torch.stack([zero, self.focal / tz, -self.focal * ty / tz**2], dim=-1)
        T = torch.stack([row_x, row_y], dim=1) @ R  # [N, 2, 3]
        cov2d = T @ self.build_covariance(log_scales, quats) @ T.transpose(1, 2)

        a = cov2d[:, 0, 0] + 0.3
        b = cov2d[:, 0, 1]
        c = cov2d[:, 1, 1] + 0.3
        det = (a * c - b * b).clamp(min=1e-6)
        mid = 0.5 * (a + c)
        radius = 3.0 * torch.sqrt(mid + torch.sqrt((mid * mid - det).clamp(min=0.1)))
        u = self.focal * t[:, 0] / tz + 0.5 * self.width
        v = self.focal * t[:, 1] / tz + 0.5 * self.height
        return torch.stack([u, v, c / det, -b / det, a / det, radius, tz], dim=-1)


num_gaussians = 100000
width = 800
height = 600
focal = 700.0


def get_inputs():
    return [
        torch.rand(num_gaussians, 3) * 2.0 - 1.0,
        torch.randn(num_gaussians, 3) * 0.5 - 4.0,
        torch.randn(num_gaussians, 4),
    ]


def get_init_inputs():
    return [width, height, focal]
