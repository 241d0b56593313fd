# problem: triton_embedding_gather.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_kernel(ids, table, out, D, BLOCK: tl.constexpr):
    place = tl.program_id(0)
    row = tl.load(ids + place)
    at = tl.arange(0, BLOCK)
    tl.store(out + place * D + at, tl.load(table + row * D + at, mask=at < D), mask=at < D)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(50, 48)

    def forward(self, x):
        out = torch.empty((*x.shape, 48), device=x.device)
        gather_kernel[(x.numel(),)](x, self.e.weight, out, 48, BLOCK=64)
        return out
