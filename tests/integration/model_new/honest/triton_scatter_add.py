# problem: triton_scatter_add.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sc(x, i, o, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    k = tl.load(i + r)
    tl.atomic_add(o + k * n + at, tl.load(x + r * n + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x, i):
        o = torch.zeros((10, x.shape[1]), device=x.device, dtype=x.dtype)
        sc[(x.shape[0],)](x, i, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return o
