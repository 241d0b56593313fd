"""A kernel gets its inputs with the strides that the problem's `get_inputs` gives them."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.errors import UsageError
from coding_framework.types import Status, Task

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + y
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
SLICED = "torch.randn(96, 480)[:, 1:161], torch.randn(1, 160).expand(96, 160)"
TRANSPOSED = "torch.randn(160, 96).t(), torch.randn(96, 160)"
KERNEL = """
#include <torch/extension.h>
__global__ void add(const float* x, const float* y, float* o, int rows, int columns,
                    int xs, int xt, int ys, int yt) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x, r = i / columns, c = i % columns;
  if (r < rows) o[i] = x[r * xs + c * xt] + y[r * ys + c * yt];
}}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {{
  {first}
  auto o = torch::empty({{x.size(0), x.size(1)}}, x.options());
  int rows = x.size(0), columns = x.size(1), n = rows * columns;
  add<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), o.data_ptr<float>(),
      rows, columns, {strides});
  return o;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
BY_FOUR = """
#include <torch/extension.h>
__global__ void add(const float4* x, const float4* y, float4* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 a = x[i], b = y[i];
  o[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
  auto o = torch::empty_like(x);
  auto in4 = [](const torch::Tensor& t) { return reinterpret_cast<float4*>(t.data_ptr<float>()); };
  int n = x.numel() / 4;
  add<<<(n + 255) / 256, 256>>>(in4(x), in4(y), in4(o), n);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
BY_STRIDES = "x.stride(0), x.stride(1), y.stride(0), y.stride(1)"
AS_ROWS = "columns, 1, columns, 1"
COPIED = "x = x.contiguous(); y = y.contiguous();"
ANSWER = '''
import torch
from torch.utils.cpp_extension import load_inline
source = r"""
{kernel}
"""
add = load_inline("add", "torch::Tensor forward(torch::Tensor x, torch::Tensor y);",
                  source.split("PYBIND11")[0], functions=["forward"])
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return add.forward(x.contiguous(), y.contiguous())
'''


def _task(inputs: str) -> Task:
    return problem_task(PROBLEM.format(inputs=inputs), "strided")


def _kernel(first: str, strides: str) -> str:
    return KERNEL.format(first=first, strides=strides)


@pytest.mark.parametrize("inputs", [SLICED, TRANSPOSED])
@pytest.mark.parametrize("kernel", [("", BY_STRIDES), (COPIED, AS_ROWS)])
async def test_who_reads_by_strides_or_copies_first_is_correct(
    emulator_pool: JudgePool, inputs: str, kernel: tuple[str, str]
) -> None:
    verdict = await emulator_pool.judge(_task(inputs), _kernel(*kernel))
    assert verdict.status is Status.CORRECT, verdict.reason


async def test_an_answer_in_python_may_copy_too(emulator_pool: JudgePool) -> None:
    code = ANSWER.format(kernel=_kernel("", AS_ROWS))
    verdict = await emulator_pool.judge(_task(SLICED), code)
    assert verdict.status is Status.CORRECT, verdict.reason


async def test_who_takes_a_transposed_input_for_rows_is_wrong(emulator_pool: JudgePool) -> None:
    verdict = await emulator_pool.judge(_task(TRANSPOSED), _kernel("", AS_ROWS))
    assert verdict.status is Status.WRONG_OUTPUT, verdict.reason


async def test_a_float4_read_of_an_unaligned_input_fails(emulator_pool: JudgePool) -> None:
    task = _task("torch.randn(4097)[1:], torch.randn(4096)")
    verdict = await emulator_pool.judge(task, BY_FOUR)
    assert verdict.status is Status.RUNTIME_ERROR, verdict.reason
    assert "misaligned" in verdict.reason


async def test_a_transposition_by_torch_is_no_kernel_of_the_candidates(
    emulator_pool: JudgePool,
) -> None:
    verdict = await emulator_pool.judge(
        _task("torch.randn(96, 96), torch.randn(96, 96)"),
        _kernel("x = x.t().contiguous().t();", BY_STRIDES),
    )
    assert verdict.status is Status.REJECTED
    assert "contiguous" in verdict.reason


def test_a_tensor_that_overlaps_itself_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="overlaps itself"):
        _task("torch.randn(64).unfold(0, 8, 1), torch.randn(57, 8)")


ZERO = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.cat([x, y * 2])
def get_inputs():
    return [torch.randn(0, 64), torch.randn(96, 64)]
def get_init_inputs():
    return []
"""
JOINED = """
#include <torch/extension.h>
__global__ void join(const float* x, const float* y, float* o, int a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = i < a ? x[i] : y[i - a] * 2;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
  auto o = torch::empty({x.size(0) + y.size(0), y.size(1)}, y.options());
  int n = o.numel();
  join<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), o.data_ptr<float>(),
                                 x.numel(), n);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


async def test_an_input_without_elements_is_handed_over(emulator_pool: JudgePool) -> None:
    verdict = await emulator_pool.judge(problem_task(ZERO, "join"), JOINED)
    assert verdict.status is Status.CORRECT, verdict.reason
