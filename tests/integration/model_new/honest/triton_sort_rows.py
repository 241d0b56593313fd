# problem: triton_sort_rows.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def srt(x, y, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * n + at, mask=at < n, other=float("inf"))
    tl.store(y + r * n + at, tl.sort(v), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        srt[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
