import math

import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 2
SEQ_LEN = 1024
DIM = 768
HEADS = 12


class Model(nn.Module):
    """GPT-2 transformer block: pre-norm causal self-attention and a GELU MLP."""

    def __init__(self, dim, heads, max_len):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ln_2 = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, 4 * dim)
        self.fc_out = nn.Linear(4 * dim, dim)
        causal = torch.ones(max_len, max_len, dtype=torch.bool).tril()
        self.register_buffer("causal", causal)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q = q.view(b, t, self.heads, -1).transpose(1, 2)
        k = k.view(b, t, self.heads, -1).transpose(1, 2)
        v = v.view(b, t, self.heads, -1).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(~self.causal[:t, :t], float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        h = F.gelu(self.fc(self.ln_2(x)), approximate="tanh")
        return x + self.fc_out(h)


def get_inputs():
    return [torch.randn(BATCH, SEQ_LEN, DIM)]


def get_init_inputs():
    return [DIM, HEADS, SEQ_LEN]
