# problem: gemm_group_norm. Two kernels and a workspace; structured bindings of a tuple in Python.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <tuple>
__global__ void gemm(const float* x, const float* w, const float* b, float* y, int N, int K) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    float sum = b[n];
    for (int k = 0; k < K; k++) sum += x[blockIdx.y * K + k] * w[n * K + k];
    y[blockIdx.y * N + n] = sum;
}
__global__ void norm(const float* x, const float* g, const float* b, float* y, int N, int size, float eps) {
    const float* row = x + blockIdx.y * N + blockIdx.x * size;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < size; i += 32) sum += row[i];
    for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
    float mean = sum / size;
    for (int i = threadIdx.x; i < size; i += 32) square += (row[i] - mean) * (row[i] - mean);
    for (int s = 16; s > 0; s /= 2) square += __shfl_xor_sync(~0u, square, s);
    float scale = rsqrtf(square / size + eps);
    for (int i = threadIdx.x; i < size; i += 32) {
        int n = blockIdx.x * size + i;
        y[blockIdx.y * N + n] = fminf(fmaxf((row[i] - mean) * scale * g[n] + b[n], -2.f), 2.f);
    }
}
std::tuple<torch::Tensor, torch::Tensor> run(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor g,
                                             torch::Tensor h, int64_t groups, double eps) {
    int M = x.size(0), K = x.size(1), N = w.size(0);
    auto t = torch::empty({M, N}, x.options()), y = torch::empty_like(t);
    gemm<<<dim3((N + 127) / 128, M), 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
                                            t.data_ptr<float>(), N, K);
    norm<<<dim3(groups, M), 32>>>(t.data_ptr<float>(), g.data_ptr<float>(), h.data_ptr<float>(),
                                  y.data_ptr<float>(), N, N / groups, eps);
    return std::make_tuple(y, t);
}
"""
cpp = """#include <tuple>
std::tuple<torch::Tensor, torch::Tensor> run(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor g,
                                             torch::Tensor h, int64_t groups, double eps);"""
ext = load_inline(
    name="gn", cpp_sources=cpp, cuda_sources=source, functions=["run"], with_cuda=True
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)

    def forward(self, x):
        norm = self.group_norm
        y, _ = ext.run(
            x, self.gemm.weight, self.gemm.bias, norm.weight, norm.bias, norm.num_groups, norm.eps
        )
        return y
