"""Modules that users bring and that are no plain function: right, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError

pytestmark = pytest.mark.unit

INPUT = "[torch.randn(n, f)]"


def problem(tmp_path: Path, forward: str, init: str = "pass", inputs: str = INPUT) -> str:
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, *inputs):\n        x = inputs[0] if inputs else torch.ones(4)\n"
        f"        {forward}\n"
        f"n = 96\nf = 40\ndef get_inputs():\n    return {inputs}\n"
        "def get_init_inputs():\n    return []\n"
    )
    return str(path)


@pytest.mark.parametrize(
    ("forward", "init", "inputs", "told"),
    [
        (
            "return x * 2 if x.sum() > 0 else x",
            "pass",
            INPUT,
            "decides by the values of its inputs",
        ),
        ("return x[x > 0]", "pass", INPUT, "decides by the values|cannot be run"),
        ("return x if torch.equal(x, x * 2) else x * 3", "pass", INPUT, "decides by the values"),
        ("return x + torch.rand_like(x)", "pass", INPUT, "draws random numbers"),
        (
            "self.seen += 1; return x * self.seen",
            "self.register_buffer('seen', torch.zeros(1))",
            INPUT,
            "depends on the calls before it",
        ),
        ("return x", "pass", "[]", "no tensor|cannot be run"),
    ],
)
def test_what_is_no_function_is_refused_in_a_sentence(
    forward: str, init: str, inputs: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=told):
        find_task(problem(tmp_path, forward, init, inputs))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_problem_that_asks_for_a_gpu_is_told_to_leave_it_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"leave out \.cuda\(\)"):
        find_task(problem(tmp_path, "return x * 2", "pass", "[torch.randn(n, f).cuda()]"))


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        ("return x + 1, x * 2", "pass", INPUT),
        ("return x * 2", "pass", "[torch.randint(0, 9, (n, f))]"),
        ("x += 1; return x", "pass", INPUT),
        ("return x * 3", "self.unused = nn.Parameter(torch.randn(7))", INPUT),
        ("return self.drop(x) * 2", "self.drop = nn.Dropout(0.0)", INPUT),
        ("return self.norm(x)", "self.norm = nn.BatchNorm1d(40)", INPUT),
    ],
)
def test_unusual_functions_are_tasks(forward: str, init: str, inputs: str, tmp_path: Path) -> None:
    task = find_task(problem(tmp_path, forward, init, inputs))
    assert len(task.cases) >= 3
