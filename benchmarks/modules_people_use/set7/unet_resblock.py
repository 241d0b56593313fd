import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 4
IN_CH = 320
OUT_CH = 640
SIZE = 32
EMB_DIM = 1280
GROUPS = 32


class Model(nn.Module):
    """Residual block of a diffusion U-Net, conditioned on the time embedding."""

    def __init__(self, in_ch, out_ch, emb_dim, groups):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, in_ch)
        self.conv1 = nn.Conv2d(in_ch, out_ch, 3, padding=1)
        self.emb_proj = nn.Linear(emb_dim, out_ch)
        self.norm2 = nn.GroupNorm(groups, out_ch)
        self.conv2 = nn.Conv2d(out_ch, out_ch, 3, padding=1)
        self.skip = nn.Conv2d(in_ch, out_ch, 1) if in_ch != out_ch else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb_proj(F.silu(emb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return self.skip(x) + h


def get_inputs():
    return [torch.randn(BATCH, IN_CH, SIZE, SIZE), torch.randn(BATCH, EMB_DIM)]


def get_init_inputs():
    return [IN_CH, OUT_CH, EMB_DIM, GROUPS]
