import torch
import torch.nn as nn


class Model(nn.Module):
    """Position encoding generator of CPVT / Twins: depthwise conv over the patch grid, class token left alone."""

    def __init__(self, dim=384, k=3, grid=(28, 28)):
        super().__init__()
        self.H, self.W = grid
        self.proj = nn.Conv2d(dim, dim, k, stride=1, padding=k // 2, groups=dim)

    def forward(self, x):
        B, N, C = x.shape
        cls_token, feat_token = x[:, :1], x[:, 1:]
        cnn_feat = feat_token.transpose(1, 2).reshape(B, C, self.H, self.W)
        feat = self.proj(cnn_feat) + cnn_feat
        feat = feat.flatten(2).transpose(1, 2)
        return torch.cat((cls_token, feat), dim=1)


batch_size = 32
dim = 384
grid = (28, 28)


def get_inputs():
    return [torch.randn(batch_size, 1 + grid[0] * grid[1], dim)]


def get_init_inputs():
    return [dim, 3, grid]
