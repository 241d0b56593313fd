# problem: sum_over_dim. Shapes worked out in Python.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

ext = load_inline(
    name="sums",
    cpp_sources="void sum_middle(torch::Tensor x, torch::Tensor out, int outer, int length, int inner);",
    cuda_sources="""
__global__ void k(const float* x, float* out, int outer, int length, int inner) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= outer * inner) return;
    const float* at = x + (long)(i / inner) * length * inner + i % inner;
    float sum = 0;
    for (int j = 0; j < length; j++) sum += at[(long)j * inner];
    out[i] = sum;
}
void sum_middle(torch::Tensor x, torch::Tensor out, int outer, int length, int inner) {
    k<<<(outer * inner + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), outer, length, inner);
}
""",
    functions="sum_middle",
)


class ModelNew(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = list(x.size())
        outer = torch.Size(shape[: self.dim]).numel()
        inner = torch.Size(shape[self.dim + 1 :]).numel()
        shape[self.dim] = 1
        out = x.new_empty(shape)
        ext.sum_middle(x, out.view(-1), outer, x.size(self.dim), inner)
        return out
