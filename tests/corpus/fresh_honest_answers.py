"""Honest KernelBench answers: `ModelNew` with kernels from `load_inline`."""

from __future__ import annotations

from coding_framework.data.kernelbench.problems import problem_task
from corpus.fresh_base import INDEX, FreshHonest

_PROBLEM = """import torch
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
"""
_ANSWER = '''import torch
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
'''
_ONE = "torch::Tensor run(torch::Tensor x)"
_TWO = "torch::Tensor run(torch::Tensor x, torch::Tensor y)"
_MATRIX = "rows = 64\ncolumns = 96"
_MATRIX_INPUT = "torch.randn(rows, columns)"


def _answer(
    name: str,
    expression: str,
    cuda: str,
    *,
    declaration: str = _ONE,
    call: str = "module.run(x)",
    init: str = "pass",
    arguments: str = "",
    initial: str = "",
    names: str = "x",
    sizes: str = _MATRIX,
    inputs: str = _MATRIX_INPUT,
) -> FreshHonest:
    shared = {"init": init, "arguments": arguments, "names": names}
    problem = _PROBLEM.format(
        expression=expression, sizes=sizes, inputs=inputs, initial=initial, **shared
    )
    answer = _ANSWER.format(
        name=f"fresh_{name}",
        cuda=cuda,
        declaration=declaration,
        function="run",
        call=call,
        **shared,
    )
    given = problem_task(problem, name)
    return FreshHonest(f"fresh/answers/{name}", ("model_new",), given, answer)


_MAP = """__global__ void k(const float* x, float* o, int n) {{
  {index}
  if (i < n) {{ float v = x[i]; o[i] = {value}; }}
}}
{declaration} {{
  auto out = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}}"""


def _map(value: str) -> str:
    return _MAP.format(index=INDEX, value=value, declaration=_ONE)


_ROWS = """__global__ void k(const float* x, float* o, int C) {{
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
}}"""
_TREE = """s[t] = a; __syncthreads();
  for (int d = 64; d > 0; d /= 2) {{ if (t < d) s[t] = {join}; __syncthreads(); }}
  a = s[0]; __syncthreads();
"""


def _rows(body: str, shape: str = "x.sizes()") -> str:
    return _ROWS.format(body=body, shape=shape, declaration=_ONE)


_ADD = _TREE.format(join="s[t] + s[t + d]")
_MOST = _TREE.format(join="fmaxf(s[t], s[t + d])")
_EACH = "for (int j = t; j < C; j += 128)"
_OUT = "o[(size_t)blockIdx.x * C + j]"
_LINEAR = """__global__ void k(const float* x, const float* w, const float* b, float* o, int M,
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
}"""
_SCALED = """__global__ void k(const float* x, float* o, float scale, float shift, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * scale + shift;
}
torch::Tensor run(torch::Tensor x, double scale, double shift) {
  auto out = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), scale, shift, n);
  return out;
}"""
_PAIR = """__global__ void k(const float* x, const float* y, float* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{ float a = x[i], b = y[i]; o[i] = {value}; }}
}}
torch::Tensor run(torch::Tensor x, torch::Tensor y) {{
  auto out = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}}"""
_BOTH = "torch.randn(rows, columns), torch.randn(rows, columns)"
_MATMUL = """__global__ void k(const float* x, const float* y, float* o, int M, int N, int K) {
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
}"""
_BIAS_ROWS = """__global__ void k(const float* x, const float* w, float* o, int n, int C) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = fmaxf(x[i] + w[i % C], 0.f);
}
torch::Tensor run(torch::Tensor x, torch::Tensor w) {
  auto out = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), n,
                              x.size(1));
  return out;
}"""

ANSWERS: tuple[FreshHonest, ...] = (
    _answer("swish", "x * torch.sigmoid(x)", _map("v / (1.f + expf(-v))")),
    _answer("hard_tanh", "F.hardtanh(x)", _map("fminf(fmaxf(v, -1.f), 1.f)")),
    _answer("cubic", "x ** 3 - x", _map("v * v * v - v")),
    _answer("volume", "torch.tanh(x) * 2", _map("2.f * tanhf(v)"),
            sizes="batch = 4\nchannels = 6\nside = 20",
            inputs="torch.randn(batch, channels, side, side)"),
    _answer("row_softmax", "torch.softmax(x, dim=1)",
            _rows(f"float a = -INFINITY; {_EACH} a = fmaxf(a, p[j]); {_MOST}  float m = a; a = 0;\n"
                  f"  {_EACH} a += expf(p[j] - m); {_ADD}  {_EACH} {_OUT} = expf(p[j] - m) / a;")),
    _answer("row_total", "torch.sum(x, dim=1, keepdim=True)",
            _rows(f"float a = 0; {_EACH} a += p[j]; {_ADD}  if (t == 0) o[blockIdx.x] = a;",
                  "{R, 1}")),
    _answer("row_top", "torch.max(x, dim=1)[0]",
            _rows(f"float a = -INFINITY; {_EACH} a = fmaxf(a, p[j]); {_MOST}"
                  "  if (t == 0) o[blockIdx.x] = a;", "{R}")),
    _answer("row_rms", "x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)",
            _rows(f"float a = 0; {_EACH} a += p[j] * p[j]; {_ADD}"
                  f"  {_EACH} {_OUT} = p[j] / sqrtf(a / C + 1e-5f);")),
    _answer("linear_then_relu", "torch.relu(self.linear(x))", _LINEAR,
            declaration="torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b)",
            call="module.run(x, self.linear.weight, self.linear.bias)",
            init="self.linear = nn.Linear(features, hidden)", arguments=", features, hidden",
            sizes="batch = 32\nfeatures = 48\nhidden = 40", inputs="torch.randn(batch, features)",
            initial="features, hidden"),
    _answer("scaled_and_shifted", "x * self.scale + self.shift", _SCALED,
            declaration="torch::Tensor run(torch::Tensor x, double scale, double shift)",
            call="module.run(x, self.scale, self.shift)",
            init="self.scale = scale\n        self.shift = shift",
            arguments=", scale, shift", initial="1.25, -0.5"),
    _answer("bias_then_relu", "torch.relu(x + self.bias)", _BIAS_ROWS,
            declaration="torch::Tensor run(torch::Tensor x, torch::Tensor w)",
            call="module.run(x, self.bias)", init="self.bias = nn.Parameter(torch.randn(width))",
            arguments=", width", sizes="rows = 32\nwidth = 48",
            inputs="torch.randn(rows, width)", initial="width"),
    _answer("product", "torch.matmul(x, y)", _MATMUL, declaration=_TWO,
            call="module.run(x, y)", names="x, y", sizes="m = 48\nn = 40\nk = 56",
            inputs="torch.randn(m, k), torch.randn(k, n)"),
    _answer("gated", "x * torch.sigmoid(y)", _PAIR.format(value="a / (1.f + expf(-b))"),
            declaration=_TWO, call="module.run(x, y)", names="x, y", inputs=_BOTH),
    _answer("larger_of_two", "torch.maximum(x, y) - x", _PAIR.format(value="fmaxf(a, b) - a"),
            declaration=_TWO, call="module.run(x, y)", names="x, y", inputs=_BOTH),
)  # fmt: skip
