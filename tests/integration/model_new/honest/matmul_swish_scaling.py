# problem: matmul_swish_scaling. A source put together with the model's numbers.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


def build(scale: float):
    source = f"""
constexpr float SCALE = {scale}f;
__global__ void fused(const float* x, const float* w, const float* b, float* y, int N, int K) {{
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    float sum = b[n];
    for (int k = 0; k < K; k++) sum += x[blockIdx.y * K + k] * w[n * K + k];
    y[blockIdx.y * N + n] = sum / (1.f + expf(-sum)) * SCALE;
}}
torch::Tensor fused_forward(torch::Tensor x, torch::Tensor w, torch::Tensor b) {{
    int M = x.size(0), K = x.size(1), N = w.size(0);
    auto y = torch::empty({{M, N}}, x.options());
    fused<<<dim3((N + 63) / 64, M), 64>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
                                         y.data_ptr<float>(), N, K);
    return y;
}}
"""
    return load_inline(
        name="fused",
        cpp_sources="torch::Tensor fused_forward(torch::Tensor x, torch::Tensor w, torch::Tensor b);",
        cuda_sources=source,
        functions=["fused_forward"],
    )


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.op = build(scaling_factor)

    def forward(self, x):
        return self.op.fused_forward(x, self.matmul.weight, self.matmul.bias)
