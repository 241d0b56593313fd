# problem: triton_cross_entropy.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def ce(logits, target, out, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(logits + row * cols + at, mask=at < cols, other=-float("inf"))
    top = tl.max(v, axis=0)
    lse = tl.log(tl.sum(tl.exp(v - top), axis=0)) + top
    t = tl.load(target + row)
    tl.store(out + row, lse - tl.load(logits + row * cols + t))


@triton.jit
def mean_kernel(v, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for s in range(0, n, BLOCK):
        total += tl.load(v + s + at, mask=s + at < n, other=0.0)
    tl.store(out, tl.sum(total) / n)


class ModelNew(nn.Module):
    def forward(self, logits, target):
        rows, cols = logits.shape
        losses = torch.empty(rows, device=logits.device, dtype=torch.float32)
        out = torch.empty((), device=logits.device, dtype=torch.float32)
        ce[(rows,)](logits, target, losses, rows, cols, BLOCK=triton.next_power_of_2(cols))
        mean_kernel[(1,)](losses, out, rows, BLOCK=64)
        return out
