import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Causal self-attention of heads that are given already."""

    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / (q.size(-1) ** 0.5)
        mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()
        return F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v


B, H, T, D = 4, 12, 256, 64


def get_inputs():
    return [torch.randn(B, H, T, D), torch.randn(B, H, T, D), torch.randn(B, H, T, D)]


def get_init_inputs():
    return []
