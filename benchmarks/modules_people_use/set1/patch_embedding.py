import torch
import torch.nn as nn


class Model(nn.Module):
    """Cuts an image into patches, embeds each, and adds its position."""

    def __init__(self, img_size=224, patch_size=16, in_chans=3, embed_dim=384):
        super().__init__()
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)
        patches = (img_size // patch_size) ** 2
        self.pos_embed = nn.Parameter(torch.randn(1, patches, embed_dim) * 0.02)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2) + self.pos_embed


def get_inputs():
    return [torch.randn(8, 3, 224, 224)]


def get_init_inputs():
    return []
