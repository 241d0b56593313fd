import math

import torch
from torch import nn


class Model(nn.Module):
    """Adds DETR's 2-d sine position embedding, computed from the padding mask, to projected backbone features."""

    def __init__(self, backbone_dim, hidden_dim=256, temperature=10000):
        super().__init__()
        self.num_pos_feats = hidden_dim // 2
        self.temperature = temperature
        self.scale = 2 * math.pi
        self.input_proj = nn.Conv2d(backbone_dim, hidden_dim, kernel_size=1)

    def position(self, mask):
        not_mask = ~mask
        y_embed = not_mask.cumsum(1, dtype=torch.float32)
        x_embed = not_mask.cumsum(2, dtype=torch.float32)
        eps = 1e-6
        y_embed = y_embed / (y_embed[:, -1:, :] + eps) * self.scale
        x_embed = x_embed / (x_embed[:, :, -1:] + eps) * self.scale

        dim_t = torch.arange(self.num_pos_feats, dtype=torch.float32, device=mask.device)
        dim_t = self.temperature ** (2 * torch.div(dim_t, 2, rounding_mode="floor") / self.num_pos_feats)
        pos_x = x_embed[:, :, :, None] / dim_t
        pos_y = y_embed[:, :, :, None] / dim_t
        pos_x = torch.stack((pos_x[..., 0::2].sin(), pos_x[..., 1::2].cos()), dim=4).flatten(3)
        pos_y = torch.stack((pos_y[..., 0::2].sin(), pos_y[..., 1::2].cos()), dim=4).flatten(3)
        return torch.cat((pos_y, pos_x), dim=3).permute(0, 3, 1, 2)

    def forward(self, features, padding):
        # padding: 1.0 where the pixel is padding
        mask = padding > 0.5
        src = self.input_proj(features) + self.position(mask)
        return src.flatten(2).permute(0, 2, 1)


bs, c, h, w = 8, 1024, 25, 34


def get_inputs():
    heights = torch.randint(h // 2, h + 1, (bs, 1, 1))
    widths = torch.randint(w // 2, w + 1, (bs, 1, 1))
    rows = torch.arange(h).view(1, h, 1)
    cols = torch.arange(w).view(1, 1, w)
    padding = ((rows >= heights) | (cols >= widths)).float()
    return [torch.randn(bs, c, h, w), padding]


def get_init_inputs():
    return [c]
