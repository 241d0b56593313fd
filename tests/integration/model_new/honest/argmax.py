# problem: argmax. Another dtype out; sizes by shape and unsqueeze/squeeze.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

ext = load_inline(
    name="argmax",
    cpp_sources="torch::Tensor argmax(torch::Tensor x);",
    cuda_sources="""
#include <torch/extension.h>
__global__ void k(const float* x, int64_t* out, int batch, int rows, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * columns) return;
    const float* at = x + (long)(i / columns) * rows * columns + i % columns;
    int best = 0;
    for (int r = 1; r < rows; r++)
        if (at[(long)r * columns] > at[(long)best * columns]) best = r;
    out[i] = best;
}
torch::Tensor argmax(torch::Tensor x) {
    auto out = torch::empty({x.size(0), 1, x.size(2)}, x.options().dtype(torch::kLong));
    k<<<(x.size(0) * x.size(2) + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<int64_t>(),
                                               x.size(0), x.size(1), x.size(2));
    return out;
}
""",
    functions=["argmax"],
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        if dim != 1:
            raise ValueError("only dim 1")

    def forward(self, x):
        out = ext.argmax(x)
        assert out.dtype is torch.int64
        return out.squeeze(1)
