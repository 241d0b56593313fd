# problem: triton_split_join.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sj(x, o, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * n + at, mask=at < n, other=0.0)
    a, b = tl.split(tl.reshape(v, (BLOCK // 2, 2)))
    w = tl.reshape(tl.join(a + b, a - b), (BLOCK,))
    tl.store(o + r * n + at, w, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        R, n = x.shape
        o = torch.empty_like(x)
        sj[(R,)](x, o, n, BLOCK=triton.next_power_of_2(n))
        return o
