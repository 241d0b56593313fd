# problem: linear_relu_bias. Parameters of its own under other names, in the reference's order.
import math

import torch
import torch.nn as nn
import torch.nn.init as init
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
__global__ void fused(const float* x, const float* w, const float* b, float* y, int N, int K) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += x[blockIdx.y * K + k] * w[n * K + k];
    y[blockIdx.y * N + n] = fmaxf(sum + b[n], 0.f);
}
torch::Tensor fused_linear(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    int M = x.size(0), K = x.size(1), N = w.size(0);
    auto y = torch::empty({M, N}, x.options());
    fused<<<dim3((N + 127) / 128, M), 128>>>(x.data_ptr<float>(), w.data_ptr<float>(),
                                            b.data_ptr<float>(), y.data_ptr<float>(), N, K);
    return y;
}
"""
ext = load_inline(
    "fused",
    "torch::Tensor fused_linear(torch::Tensor x, torch::Tensor w, torch::Tensor b);",
    source,
    functions=["fused_linear"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_shape):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        self.shift = nn.Parameter(torch.randn(bias_shape))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)

    def forward(self, x):
        return ext.fused_linear(x, self.weight.data, self.shift)
