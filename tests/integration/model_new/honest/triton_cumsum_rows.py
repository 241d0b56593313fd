# problem: triton_cumsum_rows.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan_kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0)
    tl.store(out + row * n + at, tl.associative_scan(v, 0, add), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, n = x.shape
        scan_kernel[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
        return out
