"""An answer that is kept for inputs which look the same in a few places is no answer."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.registry import find_task
from coding_framework.types import Status

KERNEL = """
#include <torch/extension.h>
__device__ float kept[1 << 17], key[4];
__device__ unsigned sum;
__device__ unsigned sum_of(int n) {{
  __shared__ unsigned total;
  if (threadIdx.x == 0) total = 1;
  __syncthreads();
  unsigned own = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) own += __float_as_uint(kept[i]) * (2 * i + 1);
  atomicAdd(&total, own);
  __syncthreads();
  return total;
}}
__global__ void relu(const float* x, float* o, int n) {{
  bool known = sum_of(n) == sum && sum != 0;
  for (int s = 0; s < 4; s++) known &= key[s] == x[(long)s * (n - 1) / 4];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {{
    o[i] = {uses} && known ? kept[i] : fmaxf(x[i], 0.0f);
    kept[i] = o[i];
  }}
  __syncthreads();
  unsigned now = sum_of(n);
  if (threadIdx.x < 4) key[threadIdx.x] = x[(long)threadIdx.x * (n - 1) / 4];
  if (threadIdx.x == 0) sum = now;
}}
torch::Tensor forward(torch::Tensor x) {{
  auto o = torch::empty_like(x);
  relu<<<1, 1024>>>(x.data_ptr<float>(), o.data_ptr<float>(), x.numel());
  return o;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("forward", &forward); }}
"""


@pytest.mark.parametrize(("uses", "status"), [("true", Status.REJECTED), ("false", Status.CORRECT)])
async def test_a_key_of_few_elements_is_no_key(
    emulator_pool: JudgePool, uses: str, status: Status
) -> None:
    code = KERNEL.format(uses=uses)
    verdict = await emulator_pool.judge(find_task("relu"), code)
    assert verdict.status is status, verdict.reason
    if uses == "true":
        assert "of which few elements are others" in verdict.reason
