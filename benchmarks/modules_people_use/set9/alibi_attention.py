import math

import torch
import torch.nn as nn


BATCH = 4
HEADS = 16
SEQUENCE = 1024
HEAD_DIM = 64


class Model(nn.Module):
    """Causal attention with linear position biases (ALiBi), as in BLOOM and MPT."""

    def __init__(self, heads, head_dim):
        super().__init__()
        self.scale = 1.0 / math.sqrt(head_dim)
        slopes = torch.tensor([2.0 ** (-8.0 * (i + 1) / heads) for i in range(heads)])
        self.register_buffer("slopes", slopes.view(1, heads, 1, 1))

    def forward(self, query, key, value):
        position = torch.arange(query.shape[2], device=query.device)
        relative = position[None, :] - position[:, None]
        scores = torch.matmul(query, key.transpose(-2, -1)) * self.scale
        scores = scores + self.slopes * relative
        scores = scores.masked_fill(relative > 0, float("-inf"))
        return torch.matmul(scores.softmax(dim=-1), value)


def get_inputs():
    return [torch.randn(BATCH, HEADS, SEQUENCE, HEAD_DIM) for _ in range(3)]


def get_init_inputs():
    return [HEADS, HEAD_DIM]
