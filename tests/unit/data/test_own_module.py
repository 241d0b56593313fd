"""A module of the user's own becomes a problem: what it needs of its file, and named sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.data.kernelbench.own_module import problem_of_class
from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError

pytestmark = pytest.mark.unit

FILE = """
from __future__ import annotations
import torch.nn.functional as F
from torch import nn

SCALE = 1.5
raise SystemExit("nothing of the file runs that the class does not need")

def gate(x, y):
    return F.silu(x) * y * SCALE

class Gated(nn.Module):
    def __init__(self, dim, hidden=64, *, bias=False):
        super().__init__()
        self.a, self.b = nn.Linear(dim, hidden, bias=bias), nn.Linear(dim, hidden, bias=bias)

    def forward(self, x):
        return gate(self.a(x), self.b(x))

class Bag(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.table = nn.Embedding(count, width)

    def forward(self, ids, scale):
        return self.table(ids).sum(1) * scale
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_a_class_of_a_file_is_a_task_whose_sizes_vary_together(file: Path) -> None:
    task = find_task(f"{file}:Gated", "4x16x32", "32, hidden=48")
    assert task.name == "Gated"
    assert "gate" in task.reference
    assert "SystemExit" not in task.reference
    shapes = [(case.inputs[0].shape[-1], (case.init_args or ())[0]) for case in task.cases]
    assert len(set(shapes)) == len(shapes)
    assert all(columns == dim for columns, dim in shapes)


def test_whole_numbers_stay_below_the_size_that_they_index(file: Path) -> None:
    task = find_task(f"{file}:Bag", "8x16:int64:100, 0.5", "100, 64")
    for case in task.cases:
        assert case.inputs[0].dtype == "int64"
        assert case.inputs[0].high == (case.init_args or ())[0] - 1
    assert task.scalar_positions == (1,)


@pytest.mark.parametrize(
    ("name", "inputs", "init", "said"),
    [
        ("Gated", "4x16x32", "", "Gated needs dim: give --init 'dim=VALUE'"),
        ("Gated", "", "32", "forward of Gated takes x: give --inputs"),
        ("Bag", "8x16:int64:100", "100, 64", "forward of Bag takes ids, scale"),
        ("Bag", "8x16:int64, 1.0", "100, 64", "give 8x16:int64:END"),
        ("Bag", "8x16:int3:5, 1.0", "100, 64", "the dtype 'int3'"),
        ("Bag", "8xy, 1.0", "100, 64", "--inputs has '8xy'"),
        ("Bag", "8x16:int64:100, 1.0", "open('x')", "--init has"),
        ("Gatd", "4x16", "1", "no class is called 'Gatd' there: it has Gated, Bag"),
    ],
)
def test_what_cannot_be_known_is_asked_for_by_name(
    name: str, inputs: str, init: str, said: str
) -> None:
    with pytest.raises(UsageError) as e:
        problem_of_class(FILE, name, inputs, init)
    assert said in str(e.value)


def test_shapes_for_a_task_that_has_its_own_are_refused() -> None:
    with pytest.raises(UsageError, match=r"go with FILE\.py:CLASS, and the task is 'relu'"):
        find_task("relu", "4x4")
    with pytest.raises(UsageError, match="cannot be read"):
        find_task("no_such.py:Model", "4x4")
