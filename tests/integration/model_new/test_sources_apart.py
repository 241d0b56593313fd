"""What torch compiles apart, and by flags of the answer, is compiled so here."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.types import Status
from support.judge_tasks import DOUBLE_TASK, make_task

pytestmark = pytest.mark.integration

_BOTH = """
constexpr int kThreads = 128;
struct Count { int n; };
static int blocks(Count c) { return (c.n + kThreads - 1) / kThreads; }
"""
_APART = f'''import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

host = r"""
#include <torch/extension.h>
{_BOTH}
void run(const float* x, float* y, Count c);
torch::Tensor twice(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  run(x.data_ptr<float>(), y.data_ptr<float>(), {{(int)x.numel()}});
  return y;
}}
"""
device = r"""
#include <cuda_runtime.h>
{_BOTH}
__global__ void k(const float* x, float* y, int n) {{
  int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}}
void run(const float* x, float* y, Count c) {{ k<<<blocks(c), kThreads>>>(x, y, c.n); }}
"""
ext = load_inline("twice", host, device, functions=["twice"])


class ModelNew(nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        return ext.twice(x)
'''


def test_a_name_may_stand_in_both_kinds_of_sources(pool: JudgePool) -> None:
    verdict = pool.judge_blocking(DOUBLE_TASK, _APART)
    assert verdict.status is Status.CORRECT, verdict.reason


def test_a_name_that_one_kind_defines_twice_is_a_mistake(pool: JudgePool) -> None:
    twice = _APART.replace("struct Count { int n; };", "struct Count { int n; };" * 2)
    verdict = pool.judge_blocking(DOUBLE_TASK, twice)
    assert verdict.status is Status.COMPILE_ERROR, verdict.reason


_HALVES = '''import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
__global__ void k(const __half* x, __half* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > __half(0.f) ? x[i] + x[i] : __half(0.f);
}
torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  k<<<(n + 127) / 128, 128>>>((const __half*)x.data_ptr<at::Half>(),
                              (__half*)y.data_ptr<at::Half>(), n);
  return y;
}
"""
ext = load_inline("halves", "torch::Tensor f(torch::Tensor x);", source, functions=["f"],
                  extra_cuda_cflags=["-O3", "-U", "__CUDA_NO_HALF_OPERATORS__",
                                     "-U__CUDA_NO_HALF_CONVERSIONS__"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.f(x)
'''


def test_a_flag_takes_a_definition_of_torchs_back(pool: JudgePool) -> None:
    task = make_task("halves", "torch.relu(x) * 2", dtype="float16")
    verdict = pool.judge_blocking(task, _HALVES)
    assert verdict.status is Status.CORRECT, verdict.reason


def test_a_module_of_torch_that_is_missing_here_is_named(pool: JudgePool) -> None:
    answer = _HALVES.replace("ext.f(x)", "torch.library.custom_op(x)")
    verdict = pool.judge_blocking(DOUBLE_TASK, answer)
    assert verdict.status is Status.UNSUPPORTED, verdict.reason
    assert "torch.library" in verdict.reason
