# problem: max_pool2d. Arguments read from the layer that torch would use.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>
template <typename scalar_t>
__global__ void pool(const scalar_t* x, scalar_t* y, int C, int H, int W, int P, int Q, int k, int s, int p, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= C * P * Q) return;
    int q = i % Q, r = i / Q % P, c = i / (P * Q);
    scalar_t best = -INFINITY;
    for (int a = 0; a < k; a++)
        for (int b = 0; b < k; b++) {
            int h = r * s - p + a * d, w = q * s - p + b * d;
            if (h >= 0 && h < H && w >= 0 && w < W) best = max(best, x[(c * H + h) * W + w]);
        }
    y[i] = best;
}
torch::Tensor pool_cuda(torch::Tensor x, int k, int s, int p, int d) {
    int H = x.size(2), W = x.size(3), C = x.size(0) * x.size(1);
    int P = (H + 2 * p - d * (k - 1) - 1) / s + 1, Q = (W + 2 * p - d * (k - 1) - 1) / s + 1;
    auto y = torch::empty({x.size(0), x.size(1), P, Q}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pool", ([&] {
        pool<scalar_t><<<(C * P * Q + 255) / 256, 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(),
                                                        C, H, W, P, Q, k, s, p, d);
    }));
    return y;
}
"""
pool = load_inline(
    "pool",
    "torch::Tensor pool_cuda(torch::Tensor x, int k, int s, int p, int d);",
    source,
    functions=["pool_cuda"],
)


class ModelNew(nn.Module):
    def __init__(self, kernel_size: int, stride: int, padding: int, dilation: int):
        super().__init__()
        self.maxpool = nn.MaxPool2d(kernel_size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        m = self.maxpool
        return pool.pool_cuda(x.contiguous(), m.kernel_size, m.stride, m.padding, m.dilation)
