# problem: triton_group_norm.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gn(x, w, b, y, C, HW, G, eps, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    g = pid % G
    per = C // G
    n = per * HW
    base = pid * n
    s1 = 0.0
    s2 = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + base + at, mask=at < n, other=0.0)
        s1 += tl.sum(v)
    mean = s1 / n
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + base + at, mask=at < n, other=0.0)
        v = tl.where(at < n, v - mean, 0.0)
        s2 += tl.sum(v * v)
    r = tl.rsqrt(s2 / n + eps)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        ch = g * per + at // HW
        v = tl.load(x + base + at, mask=at < n)
        tl.store(y + base + at, (v - mean) * r * tl.load(w + ch, mask=at < n) + tl.load(b + ch, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gn = nn.GroupNorm(2, 8)

    def forward(self, x):
        N, C, H, W = x.shape
        y = torch.empty_like(x)
        G = self.gn.num_groups
        gn[(N * G,)](x.contiguous(), self.gn.weight, self.gn.bias, y, C, H * W, G, self.gn.eps, BLOCK=64)
        return y
