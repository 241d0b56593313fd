"""Naive kernels of a user's own modules: an operation a launch, or none at all."""

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
    assert code.count("<<<") == len(expressions)


def test_two_inputs_and_a_value_that_is_used_twice() -> None:
    code = kernel_of("torch.maximum(x, out) * x", "x, out")
    assert code is not None
    assert "torch::Tensor forward(torch::Tensor t0, torch::Tensor t1)" in code
    assert "t2_kernel(const float* t0, const float* t1, float* out" in code
    assert "t3_kernel(const float* t2, const float* t0, float* out" in code


@pytest.mark.parametrize(
    ("result", "launches", "reads"),
    [
        ("x.mean(dim=-1, keepdim=True) * x", 2, ["t0[i * t0_1 + t]", "t1[(i / t0_1)]", "t0[i]"]),
        ("x.amax(0)", 1, ["t0[t * t0_1 + i]"]),
        ("((x - 1.0) ** 2).sum()", 3, ["t2[(t / t0_1) * t0_1 + (t % t0_1)]"]),
        ("x @ x.T", 1, ["t0[(i / t0_0) * t0_1 + t] * t0[t + (i % t0_0) * t0_1]"]),
        ("torch.softmax(x.transpose(0, 1), dim=1)", 1, ["t0[i + t * t0_1]"]),
    ],
)
def test_a_reduction_or_a_product_is_a_launch_that_reads_through_moved_axes(
    result: str, launches: int, reads: list[str]
) -> None:
    code = kernel_of(result)
    assert code is not None
    assert code.count("<<<") == launches
    assert all(read in code for read in reads), code


def test_parameters_are_arguments_after_the_inputs() -> None:
    code = kernel_of("torch.relu(self.act(x))", act="nn.Linear(columns, 40)")
    assert code is not None
    assert "forward(torch::Tensor t0, torch::Tensor t1, torch::Tensor t2)" in code
    assert "float a = t2[(i % t1_0)];" in code
    assert "a += t0[(i / t1_0) * t0_1 + t] * t1[t + (i % t1_0) * t1_1];" in code


def test_a_sum_of_many_terms_is_shared_by_a_block_at_every_size() -> None:
    code = kernel_of("x.sum(dim=1)")
    assert code is not None
    assert "__shared__ float parts[256];" in code
    few = MODULE.replace("columns = 96", "columns = 6").format(
        result="x.sum(dim=1)", inputs="x", act="None", count=1
    )
    assert "__shared__" not in (operation_by_operation(problem_task(few, "own")) or "__shared__")


@pytest.mark.parametrize(
    ("result", "act"),
    [
        ("x.cumsum(dim=1)", "None"),
        ("x.T", "None"),
        ("x.sum(dim=1, dtype=torch.float64)", "None"),
        ("x.mul_(2.0)", "None"),
        ("x * x.shape[1]", "None"),
        ("self.act(x)", "nn.LayerNorm(columns)"),
        ("self.act(x)", "nn.ELU(alpha=0.5)"),
        ("F.gelu(x, approximate='tanh')", "None"),
        ("x", "None"),
        ("(x, x)", "None"),
    ],
)
def test_what_is_no_chain_of_these_operations_has_none(result: str, act: str) -> None:
    assert kernel_of(result, act=act) is None
