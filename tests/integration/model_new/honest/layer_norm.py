# problem: layer_norm. The weights of nn.LayerNorm, by its own names.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void layer_norm(const float* x, const float* w, const float* b, float* y, int n, float eps) {
    __shared__ float sums[256], squares[256];
    x += (long)blockIdx.x * n;
    y += (long)blockIdx.x * n;
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) sum += x[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    float mean = sums[0] / n, square = 0;
    for (int i = threadIdx.x; i < n; i += 256) square += (x[i] - mean) * (x[i] - mean);
    squares[threadIdx.x] = square;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) squares[threadIdx.x] += squares[threadIdx.x + s];
        __syncthreads();
    }
    float scale = rsqrtf(squares[0] / n + eps);
    for (int i = threadIdx.x; i < n; i += 256) y[i] = (x[i] - mean) * scale * w[i] + b[i];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
    auto y = torch::empty_like(x);
    int n = w.numel();
    layer_norm<<<x.numel() / n, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
                                       y.data_ptr<float>(), n, (float)eps);
    return y;
}
"""
ext = load_inline(
    name="ln",
    cpp_sources="torch::Tensor forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);",
    cuda_sources=source,
    functions=["forward"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x):
        return ext.forward(x, self.ln.weight, self.ln.bias, self.ln.eps)
