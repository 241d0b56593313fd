"""Naive kernels of a user's own elementwise modules: an operation a launch, or none at all."""

from __future__ import annotations

import pytest

from coding_framework.data.kernelbench.naive import operation_by_operation
from coding_framework.data.kernelbench.problems import problem_task

pytestmark = pytest.mark.unit

MODULE = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.act = {act}

    def forward(self, {inputs}):
        return {result}

rows = 128
columns = 96

def get_inputs():
    return [torch.randn(rows, columns) for _ in range({count})]

def get_init_inputs():
    return [1.5]
"""


def kernel_of(result: str, inputs: str = "x", act: str = "nn.ReLU(inplace=True)") -> str | None:
    count = inputs.count(",") + 1
    source = MODULE.format(result=result, inputs=inputs, act=act, count=count)
    return operation_by_operation(problem_task(source, "own"))


@pytest.mark.parametrize(
    ("result", "expressions"),
    [
        ("torch.tanh(x) * self.scale", ["tanhf(v)", "v * o"]),
        ("self.act(x - 0.5)", ["v - o", "fmaxf(v, 0.0f)"]),
        ("1.0 - x.sigmoid()", ["1.0f / (1.0f + expf(-v))", "v - o"]),
        ("x ** 2 + 1e-05", ["v * v", "v + o"]),
        ("-F.gelu(x).abs()", ["0.5f * v * (1.0f + erff(v * 0.70710678f))", "fabsf(v)", "-v"]),
    ],
)
def test_each_operation_is_a_launch(result: str, expressions: list[str]) -> None:
    code = kernel_of(result)
    assert code is not None
    assert [line.split(" = ")[1][:-1] for line in code.splitlines() if "out[i] =" in line] == (
        expressions
    )
    assert code.count("<<<blocks, 256>>>") == len(expressions)


def test_two_inputs_and_a_value_that_is_used_twice() -> None:
    code = kernel_of("torch.maximum(x, out) * x", "x, out")
    assert code is not None
    assert "torch::Tensor forward(torch::Tensor t0, torch::Tensor t1)" in code
    assert "t2_kernel(const float* t0, const float* t1, float* out" in code
    assert "t3_kernel(const float* t2, const float* t0, float* out" in code


@pytest.mark.parametrize(
    ("result", "act"),
    [
        ("x.sum(dim=1)", "None"),
        ("x @ x.T", "None"),
        ("x.mul_(2.0)", "None"),
        ("self.act(x)", "nn.Linear(96, 96)"),
        ("self.act(x)", "nn.ELU(alpha=0.5)"),
        ("F.gelu(x, approximate='tanh')", "None"),
        ("x", "None"),
        ("(x, x)", "None"),
    ],
)
def test_what_is_not_elementwise_has_none(result: str, act: str) -> None:
    assert kernel_of(result, act=act) is None
