# problem: triton_softmax_persistent.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(out, inp, in_stride, out_stride, rows, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    first = tl.program_id(0)
    step = tl.num_programs(0)
    for row in tl.range(first, rows, step, num_stages=STAGES):
        at = tl.arange(0, BLOCK)
        mask = at < cols
        v = tl.load(inp + row * in_stride + at, mask=mask, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = torch.empty_like(x)
        softmax_kernel[(min(8, rows), 1, 1)](y, x, x.stride(0), y.stride(0), rows, cols, BLOCK=triton.next_power_of_2(cols), STAGES=2)
        return y
