"""A KernelBench answer to the task examples/scaled_tanh.py: ModelNew, made and called as Model is,
with its kernel from load_inline. The judge runs this file in the sandbox, on a torch of handles."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
#include <torch/extension.h>

__global__ void scaled_tanh_kernel(const float* __restrict__ x, float* __restrict__ y, float scale,
                                   int64_t n) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < n) {
        y[i] = tanhf(x[i]) * scale;
    }
}

torch::Tensor scaled_tanh(torch::Tensor x, double scale) {
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    const int threads = 256;
    const int blocks = static_cast<int>((n + threads - 1) / threads);
    scaled_tanh_kernel<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                            static_cast<float>(scale), n);
    return y;
}
"""

extension = load_inline(
    name="scaled_tanh",
    cpp_sources="torch::Tensor scaled_tanh(torch::Tensor x, double scale);",
    cuda_sources=CUDA_SOURCE,
    functions=["scaled_tanh"],
)


class ModelNew(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.scaled_tanh(x, self.scale)
