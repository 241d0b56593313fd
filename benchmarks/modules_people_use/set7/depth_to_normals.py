import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 16
HEIGHT = 480
WIDTH = 640


class Model(nn.Module):
    """Back-projects depth maps through the intrinsics and estimates surface normals."""

    def __init__(self, height, width):
        super().__init__()
        v, u = torch.meshgrid(
            torch.arange(height).float(), torch.arange(width).float(), indexing="ij"
        )
        self.register_buffer("u", u)
        self.register_buffer("v", v)

    def forward(self, depth, intrinsics):
        fx, fy, cx, cy = intrinsics.view(-1, 4, 1, 1).unbind(dim=1)
        x = (self.u - cx) / fx * depth
        y = (self.v - cy) / fy * depth
        points = torch.stack([x, y, depth], dim=1)

        du = points[:, :, :-1, 1:] - points[:, :, :-1, :-1]
        dv = points[:, :, 1:, :-1] - points[:, :, :-1, :-1]
        normals = F.normalize(torch.cross(dv, du, dim=1), dim=1)
        valid = (depth > 0)[:, None, :-1, :-1]
        return points, normals * valid


def get_inputs():
    coarse = 1.0 + 4.0 * torch.rand(BATCH, 1, 15, 20)
    depth = F.interpolate(coarse, size=(HEIGHT, WIDTH), mode="bilinear").squeeze(1)
    depth = depth + 0.01 * torch.rand(BATCH, HEIGHT, WIDTH)
    depth = depth * (torch.rand(BATCH, HEIGHT, WIDTH) > 0.05)
    center = torch.tensor([525.0, 525.0, 319.5, 239.5])
    intrinsics = center + 5.0 * torch.randn(BATCH, 4)
    return [depth, intrinsics]


def get_init_inputs():
    return [HEIGHT, WIDTH]
