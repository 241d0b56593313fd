import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 4
SEQUENCE = 1024
WIDTH = 1536
HEADS = 12
MLP_RATIO = 4


class Model(nn.Module):
    """Decoder block with attention and feed-forward in parallel and one shared key/value head (Falcon)."""

    def __init__(self, width, heads, mlp_ratio):
        super().__init__()
        self.heads = heads
        self.head_dim = width // heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, width + 2 * self.head_dim, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, mlp_ratio * width, bias=False)
        self.down = nn.Linear(mlp_ratio * width, width, bias=False)

    def attention(self, h):
        batch, length, width = h.shape
        q, k, v = self.qkv(h).split([width, self.head_dim, self.head_dim], dim=-1)
        q = q.view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = k.unsqueeze(1)
        v = v.unsqueeze(1)
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
        future = torch.ones(length, length, dtype=torch.bool, device=h.device).triu(1)
        weights = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        return self.proj(mixed)

    def forward(self, x):
        h = self.norm(x)
        return x + self.attention(h) + self.down(F.gelu(self.up(h)))


def get_inputs():
    return [torch.randn(BATCH, SEQUENCE, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, MLP_RATIO]
