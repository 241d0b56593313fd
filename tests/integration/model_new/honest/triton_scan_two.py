# problem: triton_scan_two.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def scan(a, b, o, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    u = tl.load(a + r * n + at, mask=at < n, other=1.0)
    u = tl.where(at < n, tl.sigmoid(u), 1.0)
    v = tl.load(b + r * n + at, mask=at < n, other=0.0)
    _, h = tl.associative_scan((u, v), 0, combine)
    tl.store(o + r * n + at, h, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        o = torch.empty_like(a)
        scan[(a.shape[0],)](a, b, o, a.shape[1], BLOCK=triton.next_power_of_2(a.shape[1]))
        return o
