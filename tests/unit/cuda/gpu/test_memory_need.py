"""What a shape set of real size takes of a GPU, from shapes alone."""

from __future__ import annotations

import pytest

from coding_framework.cuda.gpu.memory_need import needed_bytes
from coding_framework.types import Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit


def _task(forward: str, shape: tuple[int, ...]) -> tuple[Task, TestCase]:
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return {forward}\n"
    )
    case = TestCase(name="main", inputs=(TensorSpec(name="x", shape=shape),))
    task = Task(
        name="t", tier=0, family="f", ops=("t",), description="", reference=source, cases=(case,)
    )
    return task, case


def test_outputs_count_more_than_inputs() -> None:
    assert needed_bytes(*_task("torch.relu(x)", (1 << 30, 1))) == (48 + 96) << 30
    assert needed_bytes(*_task("x.sum(dim=0)", (1 << 30, 1))) == (48 << 30) + 96


def test_a_model_that_looks_at_values_counts_as_large_as_its_inputs() -> None:
    assert needed_bytes(*_task("x * float(x.max())", (1024,))) == 144 * 1024
