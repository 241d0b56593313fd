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
