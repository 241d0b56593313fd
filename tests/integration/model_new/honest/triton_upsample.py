# problem: triton_upsample.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def up(x, o, H, W, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w, h, nc = at % (2 * W), (at // (2 * W)) % (2 * H), at // (4 * W * H)
    v = tl.load(x + (nc * H + h // 2) * W + w // 2, mask=at < total, eviction_policy="evict_last")
    tl.store(o + at, v, mask=at < total)


class ModelNew(nn.Module):
    def forward(self, x):
        N, C, H, W = x.shape
        o = torch.empty((N, C, 2 * H, 2 * W), device=x.device, dtype=x.dtype)
        up[(triton.cdiv(o.numel(), 128),)](x, o, H, W, o.numel(), BLOCK=128)
        return o
