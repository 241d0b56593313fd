"""What a kernel does at the published sizes, where nothing of it runs without a GPU."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.types import Status

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1)
rows = 100000
def get_inputs():
    return [torch.randn(rows, 64)]
def get_init_inputs():
    return []
"""
KERNEL = """
#include <torch/extension.h>
__global__ void sum(const float* x, float* o, int w) {{
  {index} r = blockIdx.x;
  float s = 0;
  for (int j = threadIdx.x; j < w; j += 32) s += x[(int64_t)r * w + j];
  for (int k = 16; k > 0; k >>= 1) s += __shfl_down_sync(~0u, s, k);
  if (threadIdx.x == 0) o[r] = s;
}}
torch::Tensor forward(torch::Tensor x) {{
  auto o = torch::empty({{x.size(0)}}, x.options());
  sum<<<x.size(0), 32>>>(x.data_ptr<float>(), o.data_ptr<float>(), x.size(1));
  return o;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""


@pytest.mark.parametrize(
    ("index", "status"), [("unsigned short", Status.WRONG_OUTPUT), ("int", Status.CORRECT)]
)
async def test_an_index_that_counts_fewer_rows_is_wrong(
    emulator_pool: JudgePool, index: str, status: Status
) -> None:
    verdict = await emulator_pool.judge(problem_task(PROBLEM, "sums"), KERNEL.format(index=index))
    assert verdict.status is status, verdict.reason
    if status is Status.WRONG_OUTPUT:
        assert "at the published size (100000x64): kernel sum" in verdict.reason
        assert verdict.tests[-1].shapes == ((100000, 64),)


HOST = """
torch::Tensor forward(torch::Tensor x) {{
  auto o = torch::empty_like(x);
  int blocks = {grid};
  auto words = torch::zeros({{2 * blocks + 2}}, x.options());
  auto w = words.data_ptr<float>();
  k<<<blocks, 64>>>(x.data_ptr<float>(), o.data_ptr<float>(), (unsigned*)w, w + 2, x.numel());
  return o;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""
FOR_ALL = """
#include <torch/extension.h>
__global__ void k(const float* x, float* o, unsigned* arrived, float* sums, int64_t n) {
  __shared__ float total;
  float s = 0;
  for (int64_t i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64ll) s += x[i];
  for (int k = 16; k > 0; k >>= 1) s += __shfl_down_sync(~0u, s, k);
  if (threadIdx.x % 32 == 0) sums[blockIdx.x * 2 + threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < gridDim.x) { }
    __threadfence();
    total = 0;
    for (int b = 0; b < 2 * gridDim.x; b++) total += ((volatile float*)sums)[b];
  }
  __syncthreads();
  for (int64_t i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64ll)
    o[i] = x[i] - total / n;
}
"""
"""Each block waits for all."""
IN_TURN = """
#include <torch/extension.h>
__global__ void k(const float* x, float* o, unsigned* words, float* sums, int64_t n) {
  __shared__ unsigned turn;
  if (threadIdx.x == 0) turn = atomicAdd(words, 1);
  __syncthreads();
  for (int64_t i = turn * 64 + threadIdx.x; i < n; i += gridDim.x * 64ll) o[i] = fmaxf(x[i], 0);
  if (threadIdx.x == 0) {
    while (atomicAdd(words + 1, 0) < turn) { }
    atomicAdd(words + 1, 1);
  }
}
"""
"""Blocks take their numbers as they start, and each waits for the one before."""
MANY, FEW = "(x.numel() + 1023) / 1024", "std::min<int>(64, x.numel() / 1024 + 1)"


@pytest.mark.parametrize(
    ("function", "kernel", "grid", "status"),
    [
        ("x - x.mean()", FOR_ALL, MANY, Status.RUNTIME_ERROR),
        ("x - x.mean()", FOR_ALL, FEW, Status.CORRECT),
        ("torch.relu(x)", IN_TURN, MANY, Status.CORRECT),
    ],
    ids=["all", "few", "in_turn"],
)
async def test_blocks_that_wait_for_later_ones_must_all_have_room(
    emulator_pool: JudgePool, function: str, kernel: str, grid: str, status: Status
) -> None:
    task = problem_task(PROBLEM.replace("x.sum(-1)", function), "waits")
    verdict = await emulator_pool.judge(task, kernel + HOST.format(grid=grid))
    assert verdict.status is status, verdict.reason
    if status is not Status.CORRECT:
        assert "at the published size (100000x64): kernel k: a block waits" in verdict.reason
