# problem: triton_bfloat16_scale.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32) * 3.0
    tl.store(out + at, tl.maximum(v.to(tl.bfloat16).to(tl.float32), 0.0).to(tl.bfloat16), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        scale_kernel[(triton.cdiv(n, 256),)](x, out, n, 256)
        return out
