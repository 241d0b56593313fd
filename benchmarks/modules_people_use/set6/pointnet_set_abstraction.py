import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
NUM_POINTS = 4096
NUM_CENTROIDS = 1024
NUM_SAMPLES = 32
FEATURES = 64
MLP = [64, 64, 128]


def gather_points(points: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """points (B, N, C), idx (B, ...) -> (B, ..., C)"""
    batch = torch.arange(points.shape[0], device=points.device)
    batch = batch.view(-1, *([1] * (idx.dim() - 1)))
    return points[batch, idx]


class Model(nn.Module):
    """PointNet++ set abstraction with precomputed centroids and ball-query neighbours."""

    def __init__(self, in_features: int, mlp: list):
        super().__init__()
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        last = in_features + 3
        for width in mlp:
            self.convs.append(nn.Conv2d(last, width, 1))
            self.norms.append(nn.BatchNorm2d(width))
            last = width

    def forward(self, xyz, features, centroid_idx, group_idx):
        new_xyz = gather_points(xyz, centroid_idx)  # (B, S, 3)
        local_xyz = gather_points(xyz, group_idx) - new_xyz.unsqueeze(2)  # (B, S, K, 3)
        grouped = torch.cat([local_xyz, gather_points(features, group_idx)], dim=-1)

        h = grouped.permute(0, 3, 2, 1)  # (B, C, K, S)
        for conv, norm in zip(self.convs, self.norms):
            h = F.relu(norm(conv(h)))
        return new_xyz, h.amax(dim=2).transpose(1, 2)


def get_inputs():
    return [
        torch.rand(BATCH, NUM_POINTS, 3) * 2 - 1,
        torch.randn(BATCH, NUM_POINTS, FEATURES),
        torch.randint(0, NUM_POINTS, (BATCH, NUM_CENTROIDS)),
        torch.randint(0, NUM_POINTS, (BATCH, NUM_CENTROIDS, NUM_SAMPLES)),
    ]


def get_init_inputs():
    return [FEATURES, MLP]
