// Cases of fresh_honest_answers.py, as sources.py says.
//// text PROBLEM
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self{arguments}):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {expression}


{sizes}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{initial}]

//// text ANSWER
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

{cuda}
"""

cpp_source = "{declaration};"

module = load_inline(
    name="{name}",
    cpp_sources=[cpp_source],
    cuda_sources=[cuda_source],
    functions=["{function}"],
    verbose=False,
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self{arguments}):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {call}

//// text MAP
__global__ void k(const float* x, float* o, int n) {{
  {index}
  if (i < n) {{ float v = x[i]; o[i] = {value}; }}
}}
{declaration} {{
  auto out = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}}
//// text ROWS
__global__ void k(const float* x, float* o, int C) {{
  __shared__ float s[128];
  int t = threadIdx.x;
  const float* p = x + (size_t)blockIdx.x * C;
  {body}
}}
{declaration} {{
  x = x.contiguous();
  int R = x.size(0), C = x.size(1);
  auto out = torch::empty({shape}, x.options());
  k<<<R, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), C);
  return out;
}}
//// text TREE
s[t] = a; __syncthreads();
  for (int d = 64; d > 0; d /= 2) {{ if (t < d) s[t] = {join}; __syncthreads(); }}
  a = s[0]; __syncthreads();

//// text LINEAR
__global__ void k(const float* x, const float* w, const float* b, float* o, int M,
                  int N, int K) {
  int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
  if (r >= M || c >= N) return;
  float s = b[c];
  for (int j = 0; j < K; j++) s += x[r * K + j] * w[c * K + j];
  o[r * N + c] = fmaxf(s, 0.f);
}
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  int M = x.size(0), K = x.size(1), N = w.size(0);
  auto out = torch::empty({M, N}, x.options());
  k<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(x.data_ptr<float>(),
      w.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), M, N, K);
  return out;
}
//// text SCALED
__global__ void k(const float* x, float* o, float scale, float shift, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * scale + shift;
}
torch::Tensor run(torch::Tensor x, double scale, double shift) {
  auto out = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), scale, shift, n);
  return out;
}
//// text PAIR
__global__ void k(const float* x, const float* y, float* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{ float a = x[i], b = y[i]; o[i] = {value}; }}
}}
torch::Tensor run(torch::Tensor x, torch::Tensor y) {{
  auto out = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}}
//// text MATMUL
__global__ void k(const float* x, const float* y, float* o, int M, int N, int K) {
  __shared__ float a[16][16], b[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * 16 + ty, c = blockIdx.x * 16 + tx;
  float s = 0.f;
  for (int q = 0; q < K; q += 16) {
    a[ty][tx] = r < M && q + tx < K ? x[r * K + q + tx] : 0.f;
    b[ty][tx] = c < N && q + ty < K ? y[(q + ty) * N + c] : 0.f;
    __syncthreads();
    for (int j = 0; j < 16; j++) s += a[ty][j] * b[j][tx];
    __syncthreads();
  }
  if (r < M && c < N) o[r * N + c] = s;
}
torch::Tensor run(torch::Tensor x, torch::Tensor y) {
  int M = x.size(0), K = x.size(1), N = y.size(1);
  auto out = torch::empty({M, N}, x.options());
  k<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(x.data_ptr<float>(),
      y.data_ptr<float>(), out.data_ptr<float>(), M, N, K);
  return out;
}
//// text BIAS_ROWS
__global__ void k(const float* x, const float* w, float* o, int n, int C) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = fmaxf(x[i] + w[i % C], 0.f);
}
torch::Tensor run(torch::Tensor x, torch::Tensor w) {
  auto out = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), n,
                              x.size(1));
  return out;
}
//// = answers
//// _answer linear_then_relu; expression: torch.relu(self.linear(x)); cuda: @_LINEAR@; declaration: torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b); call: module.run(x, self.linear.weight, self.linear.bias); init: self.linear = nn.Linear(features, hidden); arguments: , features, hidden; initial: features, hidden; inputs: torch.randn(batch, features)
//// > sizes
batch = 32
features = 48
hidden = 40
//// _answer scaled_and_shifted; expression: x * self.scale + self.shift; cuda: @_SCALED@; declaration: torch::Tensor run(torch::Tensor x, double scale, double shift); call: module.run(x, self.scale, self.shift); arguments: , scale, shift; initial: 1.25, -0.5
//// > init
self.scale = scale
        self.shift = shift
//// _answer bias_then_relu; expression: torch.relu(x + self.bias); cuda: @_BIAS_ROWS@; declaration: torch::Tensor run(torch::Tensor x, torch::Tensor w); call: module.run(x, self.bias); init: self.bias = nn.Parameter(torch.randn(width)); arguments: , width; initial: width; inputs: torch.randn(rows, width)
//// > sizes
rows = 32
width = 48
//// _answer product; expression: torch.matmul(x, y); cuda: @_MATMUL@; declaration: @_TWO@; call: module.run(x, y); names: x, y; inputs: torch.randn(m, k), torch.randn(k, n)
//// > sizes
m = 48
n = 40
k = 56
