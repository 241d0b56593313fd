"""Modules of users with unusual forms: their right kernels are judged right."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.kernelbench.problems import problem_task

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MODULE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

n, f = 96, 40

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
KERNEL = """
#include <torch/extension.h>

__global__ void kernel(const T* x, T* o, T* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  $body
}

$result forward(torch::Tensor x$parameters) {
  auto o = torch::empty_like(x), p = torch::empty_like(x);
  int n = x.numel();
  kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<T>(), o.data_ptr<T>(), p.data_ptr<T>(), n);
  return $outputs;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


def kernel(
    body: str, *, number: str = "float", outputs: str = "o", parameters: str = "",
) -> str:  # fmt: skip
    result = "std::vector<torch::Tensor>" if outputs != "o" else "torch::Tensor"
    text = KERNEL.replace("$body", body).replace("$result", result).replace("$outputs", outputs)
    return (
        text.replace("$parameters", parameters)
        .replace("T*", f"{number}*")
        .replace("<T>", f"<{number}>")
    )


FORMS = {
    "a tuple": (
        "pass", "return x + 1, x * 2", "torch.randn(n, f)",
        kernel("o[i] = x[i] + 1; p[i] = x[i] * 2;", outputs="{o, p}"),
    ),
    "integers": (
        "pass", "return x * 2", "torch.randint(0, 9, (n, f))",
        kernel("o[i] = x[i] * 2;", number="int64_t"),
    ),
    "an update in place": (
        "pass", "x += 1; return x", "torch.randn(n, f)", kernel("o[i] = x[i] + 1;"),
    ),
    "a parameter never used": (
        "self.unused = nn.Parameter(torch.randn(7))", "return x * 3", "torch.randn(n, f)",
        kernel("o[i] = x[i] * 3;", parameters=", torch::Tensor unused"),
    ),
    "dropout of nothing": (
        "self.drop = nn.Dropout(0.0)", "return self.drop(x) * 2", "torch.randn(n, f)",
        kernel("o[i] = x[i] * 2;"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
async def test_a_right_kernel_of_an_unusual_module_is_right(
    emulator_pool: JudgePool, form: str
) -> None:
    init, forward, inputs, code = FORMS[form]
    task = problem_task(MODULE.format(init=init, forward=forward, inputs=inputs), "unusual")
    verdict = await emulator_pool.judge(task, code)
    assert verdict.correct, verdict.reason
