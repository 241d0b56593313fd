# problem: triton_row_sum_atomic.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, out, n, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + row, tl.sum(tl.load(x + row * n + at, mask=at < n, other=0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        out = torch.zeros(rows, device=x.device)
        sum_kernel[(rows, triton.cdiv(n, 1024))](x, out, n, BLOCK=1024)
        return out
