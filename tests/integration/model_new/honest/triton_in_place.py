# problem: triton_in_place.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def shift(y, n, BLOCK: tl.constexpr):
    """In place, by blocks of fewer elements than threads: the threads left over read them too."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(y + at, mask=at < n, other=0.0)
    tl.store(y + at, 2.0 * value + 1.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        for _ in range(2):
            shift[(triton.cdiv(y.numel(), 64),)](y, y.numel(), BLOCK=64)
        return y
