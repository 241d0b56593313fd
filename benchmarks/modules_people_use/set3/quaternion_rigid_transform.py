import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class Model(nn.Module):
    """Applies a rigid transform (quaternion wxyz + translation) to a batch of point clouds."""

    def __init__(self, eps: float = 1e-8) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, quat: Tensor, trans: Tensor, points: Tensor) -> Tensor:
        # quat: (B, 4), trans: (B, 3), points: (B, N, 3)
        q = F.normalize(quat, dim=-1, eps=self.eps)
        w = q[:, None, :1]
        xyz = q[:, None, 1:].expand_as(points)
        t = 2.0 * torch.cross(xyz, points, dim=-1)
        rotated = points + w * t + torch.cross(xyz, t, dim=-1)
        return rotated + trans.unsqueeze(1)


B, N = 256, 2048


def get_inputs():
    return [torch.randn(B, 4), torch.randn(B, 3), torch.randn(B, N, 3)]


def get_init_inputs():
    return []
