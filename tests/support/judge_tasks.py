"""Small tasks and honest kernels for the judge's tests; no test is in here."""

from __future__ import annotations

from coding_framework.types import DType, Task, TensorSpec, TestCase

SHAPES = {"main": (64, 96), "odd": (37, 53), "tiny": (3, 5)}


def make_task(
    name: str,
    expression: str,
    inputs: str = "x",
    *,
    reduces: bool = False,
    dtype: DType = "float32",
    naive: str | None = None,
    atomic_order: bool = False,
) -> Task:
    """A task whose Model returns `expression` over the named inputs, all of one shape."""
    return Task(
        name=name,
        tier=0,
        family="test",
        ops=(name,),
        description=expression,
        reference=(
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
            f"class Model(nn.Module):\n    def forward(self, {', '.join(inputs)}):\n"
            f"        return {expression}\n"
        ),
        cases=tuple(
            TestCase(
                name=case,
                inputs=tuple(TensorSpec(name=n, shape=shape, dtype=dtype) for n in inputs),
                reduction_length=shape[1] if reduces else 1,
                shown=case == "main",
            )
            for case, shape in SHAPES.items()
        ),
        naive_kernel=naive,
        atomic_order=atomic_order,
    )


def extension(kernels: str, body: str, *, inputs: str = "x", extra: str = "") -> str:
    """An archive-style source: kernels, a `forward` over the named inputs, the module."""
    arguments = ", ".join(f"torch::Tensor {n}" for n in inputs)
    return f"""#include <torch/extension.h>
#include <cuda_runtime.h>
{extra}
{kernels}
torch::Tensor forward({arguments}) {{
  int n = x.numel();
  auto out = torch::empty_like(x);
  const float* px = x.data_ptr<float>();
  float* po = out.data_ptr<float>();
  {body}
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""


DOUBLE_KERNEL = """
__global__ void twice(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = 2.0f * x[i] + 1.0f;
}
"""
DOUBLE_BODY = "twice<<<(n + 255) / 256, 256>>>(px, po, n);"
DOUBLE = extension(DOUBLE_KERNEL, DOUBLE_BODY)
DOUBLE_TASK = make_task("double", "x * 2 + 1", naive=DOUBLE)

DOUBLE_TWO_A_THREAD = extension(
    """
__global__ void twice(const float* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int j = i; j < n; j += gridDim.x * blockDim.x) o[j] = 2.0f * x[j] + 1.0f;
}
""",
    "twice<<<(n + 511) / 512, 256>>>(px, po, n);",
)

ROW_SUM_SOURCE = """#include <torch/extension.h>
__global__ void row_sum(const float* x, float* o, int rows, int columns) {{
  {kernel}
}}
torch::Tensor forward(torch::Tensor x) {{
  int rows = x.size(0), columns = x.size(1);
  auto out = torch::{make}({{rows}}, x.options());
  row_sum<<<{grid}, {block}>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, columns);
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""


def row_sum(kernel: str, *, grid: str = "rows", block: str = "32", make: str = "empty") -> str:
    """A row-sum source with this kernel body."""
    return ROW_SUM_SOURCE.format(kernel=kernel, grid=grid, block=block, make=make)


ROW_SUM = row_sum(
    """
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = 0; i < columns; i++) sum += x[row * columns + i];
  o[row] = sum;""",
    grid="(rows + 31) / 32",
)
ROW_SUM_TASK = make_task("row_sum", "x.sum(dim=1)", reduces=True, naive=ROW_SUM)

ROW_SUM_SHARED = row_sum(
    """
  __shared__ float part[128];
  int row = blockIdx.x, t = threadIdx.x;
  float sum = 0.0f;
  for (int i = t; i < columns; i += 128) sum += x[row * columns + i];
  part[t] = sum;
  __syncthreads();
  for (int k = 64; k > 0; k /= 2) {
    if (t < k) part[t] += part[t + k];
    __syncthreads();
  }
  if (t == 0) o[row] = part[0];""",
    block="128",
)

ADD_KERNEL = """
__global__ void add(const float* x, const float* y, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] + y[i];
}
"""
ADD_TASK = make_task("add", "x + y", "xy")
ADD = extension(
    ADD_KERNEL,
    "add<<<(n + 255) / 256, 256>>>(px, y.data_ptr<float>(), po, n);",
    inputs="xy",
)
