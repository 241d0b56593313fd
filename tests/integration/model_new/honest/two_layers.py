# problem: two_layers. Weights in a Sequential; a helper module of its own.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

ext = load_inline(
    name="linear",
    cpp_sources="torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b, bool relu);",
    cuda_sources="""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void k(const float* x, const float* w, const float* b, float* y, int N, int K, bool relu) {
    extern __shared__ float row[];
    for (int i = threadIdx.x; i < K; i += blockDim.x) row[i] = x[blockIdx.x * K + i];
    __syncthreads();
    for (int n = threadIdx.x; n < N; n += blockDim.x) {
        float sum = b[n];
        for (int i = 0; i < K; i++) sum += row[i] * w[n * K + i];
        y[blockIdx.x * N + n] = relu ? fmaxf(sum, 0.f) : sum;
    }
}
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b, bool relu) {
    auto y = torch::empty({x.size(0), w.size(0)}, x.options());
    auto stream = at::cuda::getCurrentCUDAStream();
    k<<<x.size(0), 128, x.size(1) * sizeof(float), stream>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), w.size(0), x.size(1), relu);
    return y;
}
""",
    functions=["linear"],
)


class FusedLinear(nn.Linear):
    """nn.Linear whose forward is ours."""

    relu = False

    def forward(self, x):
        return ext.linear(x, self.weight, self.bias, self.relu)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        first = FusedLinear(in_features, hidden)
        first.relu = True
        self.net = nn.Sequential(first, nn.Identity(), FusedLinear(hidden, out_features))

    def forward(self, x):
        return self.net(x)
