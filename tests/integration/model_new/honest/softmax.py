# problem: softmax. Output made in Python, a kernel without a result, checks and views.
import math

import numpy as np  # not used, as in many answers
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <cfloat>

template <int THREADS>
__global__ void softmax_rows(const float* __restrict__ in, float* __restrict__ out, int columns) {
    __shared__ float shared[THREADS];
    const float* x = in + blockIdx.x * (long long)columns;
    float* y = out + blockIdx.x * (long long)columns;
    float largest = -FLT_MAX;
    for (int i = threadIdx.x; i < columns; i += THREADS) largest = fmaxf(largest, x[i]);
    shared[threadIdx.x] = largest;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + s]);
        __syncthreads();
    }
    largest = shared[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) sum += expf(x[i] - largest);
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) shared[threadIdx.x] += shared[threadIdx.x + s];
        __syncthreads();
    }
    sum = shared[0];
    for (int i = threadIdx.x; i < columns; i += THREADS) y[i] = expf(x[i] - largest) / sum;
}

void softmax_forward(torch::Tensor input, torch::Tensor output) {
    TORCH_CHECK(input.is_cuda(), "input must be a CUDA tensor");
    TORCH_CHECK(input.is_contiguous(), "input must be contiguous");
    softmax_rows<128><<<input.size(0), 128>>>(
        input.data_ptr<float>(), output.data_ptr<float>(), input.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""

_module = load_inline(
    name="softmax_ext",
    cpp_sources=["void softmax_forward(torch::Tensor input, torch::Tensor output);"],
    cuda_sources=[SOURCE],
    functions=["softmax_forward"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    @torch.no_grad()
    def forward(self, x):
        assert x.dim() == 2 and x.dtype == torch.float32 and x.is_cuda
        rows, columns = x.shape
        flat = x.contiguous().view(-1).view(rows, math.prod(x.shape) // rows)
        out = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
        _module.softmax_forward(flat, out)
        return out
