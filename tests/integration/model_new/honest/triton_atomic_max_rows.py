# problem: triton_atomic_max_rows.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def am(x, o, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + r * n + at, mask=at < n, other=-float("inf"))
    tl.atomic_max(o + r, tl.max(v))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        o = torch.full((rows,), float("-inf"), dtype=x.dtype, device=x.device)
        am[(rows, triton.cdiv(n, 16))](x, o, n, BLOCK=16)
        return o
