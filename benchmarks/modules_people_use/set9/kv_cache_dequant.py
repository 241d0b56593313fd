import torch
import torch.nn as nn


BATCH = 8
KV_HEADS = 8
CACHE_LENGTH = 4096
HEAD_DIM = 128


class Model(nn.Module):
    """Reads an int8 key cache back to float, with one scale and zero point per head and token."""

    def __init__(self):
        super().__init__()

    def forward(self, cache, scale, zero_point):
        return (cache.to(torch.float32) - zero_point) * scale


def get_inputs():
    cache = torch.randint(-128, 128, (BATCH, KV_HEADS, CACHE_LENGTH, HEAD_DIM), dtype=torch.int8)
    scale = torch.rand(BATCH, KV_HEADS, CACHE_LENGTH, 1) * 0.03 + 0.005
    zero_point = torch.randint(-20, 21, (BATCH, KV_HEADS, CACHE_LENGTH, 1)).float()
    return [cache, scale, zero_point]


def get_init_inputs():
    return []
