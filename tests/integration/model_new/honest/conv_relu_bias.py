# problem: conv_relu_bias. Two extensions whose kernels have the same name.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

conv_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>
__device__ __forceinline__ int at(int n, int c, int h, int w, int C, int H, int W) {
    return ((n * C + c) * H + h) * W + w;
}
__global__ void kernel(const float* x, const float* w, const float* b, float* y, int C, int H, int W,
                       int O, int K) {
    int P = H - K + 1, Q = W - K + 1;
    int q = blockIdx.x * blockDim.x + threadIdx.x, p = blockIdx.y, o = blockIdx.z % O, n = blockIdx.z / O;
    if (q >= Q) return;
    float sum = b[o];
    for (int c = 0; c < C; c++)
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++)
                sum += x[at(n, c, p + i, q + j, C, H, W)] * w[at(o, c, i, j, C, K, K)];
    y[at(n, o, p, q, O, P, Q)] = sum;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), O = w.size(0), K = w.size(2);
    auto y = torch::empty({N, O, H - K + 1, W - K + 1}, x.options());
    kernel<<<dim3((W - K + 32) / 32, H - K + 1, N * O), 32>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), C, H, W, O, K);
    return y;
}
"""
relu_bias_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void kernel(float* x, const float* bias, int size, int area, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) x[i] = fmaxf(x[i], 0.f) + bias[i / area % channels];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor bias) {
    int size = x.numel();
    kernel<<<(size + 255) / 256, 256>>>(x.data_ptr<float>(), bias.data_ptr<float>(), size,
                                        x.size(2) * x.size(3), x.size(1));
    return x;
}
"""
conv = load_inline(
    name="conv",
    cpp_sources="torch::Tensor forward(torch::Tensor x, torch::Tensor w, torch::Tensor b);",
    cuda_sources=conv_source,
    functions=["forward"],
)
relu_bias = load_inline(
    name="relu_bias",
    cpp_sources="torch::Tensor forward(torch::Tensor x, torch::Tensor bias);",
    cuda_sources=relu_bias_source,
    functions=["forward"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super(ModelNew, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.first = conv
        self.second = relu_bias

    def forward(self, x):
        x = self.first.forward(x, self.conv.weight, self.conv.bias)
        return self.second.forward(x, self.bias)
