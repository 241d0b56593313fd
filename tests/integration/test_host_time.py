"""The time of host code stands in the verdict, and counts where no device work could hide it."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.registry import find_task
from coding_framework.types import Status

KERNEL = """
#include <torch/extension.h>
__global__ void relu(const float* x, float* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = fmaxf(x[i], 0.0f);
}}
torch::Tensor forward(torch::Tensor x) {{
  volatile unsigned state = 1;
  for (long i = 0; i < {rounds}L; i++) state = state * 1664525u + 1013904223u;
  auto o = torch::empty_like(x);
  int n = x.numel();
  relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), n);
  return o;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""


@pytest.mark.parametrize(("rounds", "least", "most"), [(0, 0.0, 5.0), (20_000_000, 8.0, 1000.0)])
async def test_a_call_that_computes_on_the_host_is_as_slow_as_that(
    emulator_pool: JudgePool, rounds: int, least: float, most: float
) -> None:
    verdict = await emulator_pool.judge(find_task("relu"), KERNEL.format(rounds=rounds))
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.timing is not None
    assert verdict.timing.host_ms is not None
    assert least <= verdict.timing.host_ms <= most
    assert (verdict.timing.kernel_ms > 1.0) == (rounds > 0)
