"""What a shape set of real size takes of a GPU, from shapes alone."""

from __future__ import annotations

import pytest

from coding_framework.cuda.gpu.memory_need import MemoryNeed, memory_need
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
    assert memory_need(*_task("torch.relu(x)", (1 << 30, 1))).working == (48 + 96) << 30
    assert memory_need(*_task("x.sum(dim=0)", (1 << 30, 1))).working == (48 << 30) + 96


def test_a_model_that_looks_at_values_counts_as_large_as_its_inputs() -> None:
    assert memory_need(*_task("x * float(x.max())", (1024,))).working == 144 * 1024


def test_a_model_that_gives_its_input_back_makes_nothing() -> None:
    assert memory_need(*_task("x", (1024,))) == MemoryNeed(144 * 1024, 0)
    assert memory_need(*_task("x.relu_()", (1024,))).results == 0


def test_what_passes_between_operations_counts() -> None:
    """A small output may come of large tensors, which the reference and honest answers hold."""
    wide = "x.repeat(1, 256).{}.amin(dim=1)"
    task = memory_need(*_task(wide.format("tanh()"), (1 << 20, 1)))
    passing = (2 << 28) - (2 << 20)
    assert task.working == ((48 + 96) << 20) + 16 * passing
    assert task.results == (4 << 28) * 2 + (4 << 20)
    in_place = memory_need(*_task(wide.format("tanh_()"), (1 << 20, 1)))
    assert in_place.results == (4 << 28) + (4 << 20)
    views = memory_need(*_task("x.view(-1).reshape(16, -1).transpose(0, 1).sum()", (1 << 20, 1)))
    assert views.working == (48 << 20) + 96
