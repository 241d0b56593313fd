# problem: triton_gelu_helper.
import torch
import torch.nn as nn
import triton
import triton.language as tl


HALF = tl.constexpr(0.5)


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def gelu_kernel(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + at, gelu(tl.load(x + at)) * HALF)
    else:
        tl.store(out + at, gelu(tl.load(x + at, mask=at < n)) * HALF, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        gelu_kernel[(triton.cdiv(n, 512),)](x, out, n, BLOCK=512)
        return out
