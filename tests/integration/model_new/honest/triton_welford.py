# problem: triton_welford.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(m1, s1, n1, m2, s2, n2):
    d = m2 - m1
    n = n1 + n2
    r = tl.where(n == 0.0, 0.0, n2 / n)
    return m1 + d * r, s1 + s2 + d * d * n1 * r, n


@triton.jit
def var(x, v, m, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    a = tl.load(x + r * n + at, mask=at < n, other=0.0)
    mean, s, c = tl.reduce((a, tl.zeros_like(a), (at < n).to(tl.float32)), 0, combine)
    tl.store(v + r, s / (c - 1))
    tl.store(m + r, mean)


class ModelNew(nn.Module):
    def forward(self, x):
        v = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        m = torch.empty_like(v)
        var[(x.shape[0],)](x, v, m, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return v, m
