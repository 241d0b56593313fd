import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 2
DIM = 256
HEADS = 8
POINTS = 4
SPATIAL_SHAPES = [(64, 64), (32, 32), (16, 16), (8, 8)]


class Model(nn.Module):
    """Multi-scale deformable self-attention over a feature pyramid, with residual and LayerNorm."""

    def __init__(self, dim: int, heads: int, points: int, spatial_shapes: list):
        super().__init__()
        self.heads = heads
        self.points = points
        self.spatial_shapes = spatial_shapes
        self.levels = len(spatial_shapes)
        self.value_proj = nn.Linear(dim, dim)
        self.sampling_offsets = nn.Linear(dim, heads * self.levels * points * 2)
        self.attention_weights = nn.Linear(dim, heads * self.levels * points)
        self.output_proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        sizes = torch.tensor([[w, h] for h, w in spatial_shapes], dtype=torch.float32)
        self.register_buffer("level_wh", sizes.view(1, 1, 1, self.levels, 1, 2))
        self._reset_offsets()

    def _reset_offsets(self):
        nn.init.normal_(self.sampling_offsets.weight, std=0.01)
        theta = torch.arange(self.heads, dtype=torch.float32) * (2.0 * math.pi / self.heads)
        grid = torch.stack([theta.cos(), theta.sin()], dim=-1)
        grid = grid / grid.abs().amax(dim=-1, keepdim=True)
        radius = torch.arange(1, self.points + 1, dtype=torch.float32)
        bias = grid[:, None, None, :] * radius[None, None, :, None]
        bias = bias.expand(self.heads, self.levels, self.points, 2)
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(bias.reshape(-1))

    def forward(self, src, pos, reference_points, padding_mask):
        b, n, d = src.shape
        query = src + pos

        value = self.value_proj(src).masked_fill(padding_mask.unsqueeze(-1), 0.0)
        value = value.view(b, n, self.heads, d // self.heads)
        offsets = self.sampling_offsets(query).view(b, n, self.heads, self.levels, self.points, 2)
        weights = self.attention_weights(query).view(b, n, self.heads, self.levels * self.points)
        weights = weights.softmax(dim=-1)

        locations = reference_points[:, :, None, :, None, :] + offsets / self.level_wh
        grids = 2.0 * locations - 1.0

        sampled = []
        per_level = value.split([h * w for h, w in self.spatial_shapes], dim=1)
        for level, (h, w) in enumerate(self.spatial_shapes):
            feat = (
                per_level[level].permute(0, 2, 3, 1).reshape(b * self.heads, d // self.heads, h, w)
            )
            grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)  # (B*H, N, P, 2)
            sampled.append(
                F.grid_sample(
                    feat, grid, mode="bilinear", padding_mode="zeros", align_corners=False
                )
            )

        sampled = torch.cat(sampled, dim=-1)  # (B*H, Dh, N, L*P)
        weights = weights.transpose(1, 2).reshape(b * self.heads, 1, n, self.levels * self.points)
        out = (sampled * weights).sum(dim=-1).view(b, d, n).transpose(1, 2)
        return self.norm(src + self.output_proj(out))


def get_inputs():
    num_tokens = sum(h * w for h, w in SPATIAL_SHAPES)
    padding_mask = torch.rand(BATCH, num_tokens) < 0.05
    return [
        torch.randn(BATCH, num_tokens, DIM),
        torch.randn(BATCH, num_tokens, DIM),
        torch.rand(BATCH, num_tokens, len(SPATIAL_SHAPES), 2),
        padding_mask,
    ]


def get_init_inputs():
    return [DIM, HEADS, POINTS, SPATIAL_SHAPES]
