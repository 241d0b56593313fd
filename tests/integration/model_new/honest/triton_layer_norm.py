# problem: triton_layer_norm.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, w, b, out, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * stride
    out += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < N, other=0.0)
    mean = tl.sum(total, axis=0) / N
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        d = tl.where(at < N, tl.load(x + at, mask=at < N, other=0.0) - mean, 0.0)
        square += d * d
    scale = 1 / tl.sqrt(tl.sum(square, axis=0) / N + eps)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        y = (tl.load(x + at, mask=mask) - mean) * scale
        tl.store(out + at, y * tl.load(w + at, mask=mask) + tl.load(b + at, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(200)

    def forward(self, x):
        out = torch.empty_like(x)
        rows, n = x.shape
        norm_kernel[(rows,)](x, self.norm.weight, self.norm.bias, out, x.stride(0), n,
                             self.norm.eps, BLOCK=128)
        return out
