"""A problem whose constructor takes lists is made with lists, wherever its reference runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.agents.prompts.contract import contract_of
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.kernelbench.problems import load_problem_file
from coding_framework.data.parts.pieces import parted
from coding_framework.data.parts.whole import whole_of
from coding_framework.reference_model import init_arguments, run_reference
from coding_framework.types import Status

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, scales, sides):
        super().__init__()
        self.scales = [1.0] + scales
        self.sides = (1,) + sides[0]

    def forward(self, x):
        return x * self.scales[2] + self.sides[1]


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return [[2.0, 3.0], [(5, 7)]]
"""
KERNEL = """
#include <torch/extension.h>
__global__ void scale(const float* x, float* o, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) o[i] = x[i] * 3.0f + 5.0f;
}
torch::Tensor forward(torch::Tensor x) {
  auto o = torch::empty_like(x);
  int count = x.numel();
  scale<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), count);
  return o;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "lists.py"
    path.write_text(PROBLEM)
    return path


async def test_it_is_judged(emulator_pool: JudgePool, problem: Path) -> None:
    verdict = await emulator_pool.judge(load_problem_file(problem), KERNEL)
    assert verdict.status is Status.CORRECT, verdict.reason


def test_its_contract_is_told_and_it_is_taken_apart(problem: Path) -> None:
    task = load_problem_file(problem)
    assert "forward(Tensor x[256, 512]" in contract_of(task).signature
    assert parted(whole_of(task))


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        ("", [[2.0, 3.0], [(5, 7)]]),
        ("def get_init_inputs():\n    return [1]", [(2.0, 3.0), ((5, 7),)]),
        ("def get_init_inputs():\n    raise OSError", [(2.0, 3.0), ((5, 7),)]),
        ("def get_init_inputs():\n    return [[], ([1],)]", [[2.0, 3.0], ([5, 7],)]),
    ],
)
def test_lists_are_what_the_problem_says(tail: str, found: list[object]) -> None:
    model = run_reference(f"{PROBLEM}\n\n{tail}")["Model"]
    assert init_arguments(model, ((2.0, 3.0), ((5, 7),))) == found
