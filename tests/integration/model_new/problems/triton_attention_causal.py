import torch
import torch.nn as nn
import torch.nn.functional as F


B, H, L, D = 1, 2, 40, 24


class Model(nn.Module):
    def forward(self, x, y, z):
        return F.scaled_dot_product_attention(x, y, z, is_causal=True)


def get_inputs():
    return [torch.randn(B, H, L, D), torch.randn(B, H, L, D), torch.randn(B, H, L, D)]


def get_init_inputs():
    return []
