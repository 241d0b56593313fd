import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
SEQ_LEN = 512
DIM = 768
HEADS = 12
FF_DIM = 3072
NUM_BUCKETS = 32
MAX_DISTANCE = 128


def relative_buckets(length: int, num_buckets: int, max_distance: int) -> torch.Tensor:
    """Bidirectional log-spaced buckets of (key position - query position)."""
    pos = torch.arange(length)
    rel = pos[None, :] - pos[:, None]
    half = num_buckets // 2
    exact = half // 2
    dist = rel.abs()
    scaled = torch.log(dist.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (scaled * (half - exact)).long()).clamp(max=half - 1)
    return (rel > 0).long() * half + torch.where(dist < exact, dist, far)


class ScaleNorm(nn.Module):
    """T5's LayerNorm: no mean subtraction and no bias."""

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        variance = x.square().mean(dim=-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


class Model(nn.Module):
    """T5 encoder layer: bucketed relative-bias self-attention followed by a ReLU feed-forward."""

    def __init__(
        self, dim: int, heads: int, ff_dim: int, seq_len: int, num_buckets: int, max_distance: int
    ):
        super().__init__()
        self.heads = heads
        self.attn_norm = ScaleNorm(dim)
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.relative_bias = nn.Embedding(num_buckets, heads)
        self.register_buffer("buckets", relative_buckets(seq_len, num_buckets, max_distance))
        self.ff_norm = ScaleNorm(dim)
        self.wi = nn.Linear(dim, ff_dim, bias=False)
        self.wo = nn.Linear(ff_dim, dim, bias=False)

    def split_heads(self, x):
        b, n, d = x.shape
        return x.view(b, n, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        h = self.attn_norm(x)
        q, k, v = (
            self.split_heads(self.q(h)),
            self.split_heads(self.k(h)),
            self.split_heads(self.v(h)),
        )

        # T5 folds 1/sqrt(d) into the initialisation, so the scores are not scaled
        scores = q @ k.transpose(-1, -2)
        scores = scores + self.relative_bias(self.buckets).permute(2, 0, 1).unsqueeze(0)
        scores = scores.masked_fill(
            ~attention_mask[:, None, None, :], torch.finfo(scores.dtype).min
        )
        context = F.softmax(scores, dim=-1) @ v
        x = x + self.o(context.transpose(1, 2).flatten(2))

        h = self.ff_norm(x)
        return x + self.wo(F.relu(self.wi(h)))


def get_inputs():
    lengths = torch.randint(SEQ_LEN // 2, SEQ_LEN + 1, (BATCH, 1))
    attention_mask = torch.arange(SEQ_LEN)[None, :] < lengths
    return [torch.randn(BATCH, SEQ_LEN, DIM), attention_mask]


def get_init_inputs():
    return [DIM, HEADS, FF_DIM, SEQ_LEN, NUM_BUCKETS, MAX_DISTANCE]
