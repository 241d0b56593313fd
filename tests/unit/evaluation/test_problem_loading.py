"""Problems of others become tasks in a process of their own, whatever they do there."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation import suites
from coding_framework.evaluation.problem_loading import ProblemSource, load_problems
from coding_framework.evaluation.suites import load_suite
from coding_framework.types import Task
from support.made_conversations import make_task

pytestmark = pytest.mark.unit

GOOD = """
import torch
import torch.nn as nn
N = 64
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(N, N)]
def get_init_inputs():
    return []
"""
BAD = {
    "raises": GOOD.replace("return [torch.rand(N, N)]", "raise RuntimeError('no inputs today')"),
    "exits": GOOD.replace("return [torch.rand(N, N)]", "raise SystemExit(0)"),
    "allocates": GOOD.replace("torch.rand(N, N)", "torch.empty(1 << 41, device='cpu')"),
    "dies": GOOD.replace("return [torch", "import os; os.kill(os.getpid(), 9); return [torch"),
    "sleeps": GOOD.replace("return [torch", "import time; time.sleep(999); return [torch"),
}


@pytest.mark.slow
def test_what_a_bad_problem_does_costs_itself_alone() -> None:
    names = [*BAD, "good"]
    sources = [ProblemSource(name=n, code=BAD.get(n, GOOD), level=1) for n in names]
    found = dict(zip(names, load_problems(sources, limit_s=20.0), strict=True))
    assert isinstance(found["good"], Task)
    assert "no inputs today" in str(found["raises"])
    assert "SystemExit" in str(found["exits"])
    assert "RuntimeError" in str(found["allocates"])
    assert found["dies"] == "its process was killed"
    assert found["sleeps"] == "it took longer than 20 s"


@pytest.mark.slow
def test_problems_that_several_processes_share_out_keep_their_order() -> None:
    """In each process one dies and another raises, and those behind them become tasks."""
    kinds = ["good", "good", "dies", "dies", "raises", "raises", *["good"] * 17]
    sources = [
        ProblemSource(name=f"p{n}", code=BAD.get(kind, GOOD), level=1)
        for n, kind in enumerate(kinds)
    ]
    found = load_problems(sources)
    names = [task.name if isinstance(task, Task) else task for task in found]
    good = [n for n, kind in enumerate(kinds) if kind == "good"]
    assert [names[n] for n in good] == [f"p{n}" for n in good]
    assert names[2:4] == ["its process was killed"] * 2
    assert all("no inputs today" in name for name in names[4:6])


@pytest.mark.slow
def test_a_suite_of_a_checkout_names_what_cannot_be_a_task(tmp_path: Path) -> None:
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "10_Good.py").write_text(GOOD)
    (folder / "9_Bad.py").write_text(BAD["raises"])
    (folder / "3_Also.py").write_text(GOOD.replace("relu", "exp"))
    (folder / "6_Bad.py").write_text(BAD["exits"])
    suite = load_suite("kernelbench:1", kernelbench=tmp_path)
    assert [entry.number for entry in suite.tasks] == [3, 10]
    assert list(suite.not_applicable) == ["6_Bad.py", "9_Bad.py"]


def test_the_representative_subset_is_the_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for number in range(1, 101):
        (folder / f"{number}_P.py").write_text("")
    monkeypatch.setattr(suites, "load_problems", lambda asked: [make_task() for _ in asked])
    part = load_suite("kernelbench:1:representative", kernelbench=tmp_path)
    assert [entry.number for entry in part.tasks] == list(suites.REPRESENTATIVE[1])
    assert len(part.tasks) == 18


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("kernelbench:5", "is no level"),
        ("kernelbench:1:best", "is no level"),
        ("kernelbench:4:representative", "no representative subset of level 4"),
        ("kernelbench:2", "holds no problems"),
    ],
)
def test_what_is_no_suite_of_kernelbench_is_wrong_use(
    tmp_path: Path, spec: str, sentence: str
) -> None:
    folder = tmp_path / "KernelBench" / "level4"
    folder.mkdir(parents=True)
    (folder / "1_P.py").write_text("")
    with pytest.raises(UsageError, match=sentence):
        load_suite(spec, kernelbench=tmp_path)


def test_a_line_that_is_no_problem_is_wrong_use(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text('{"level": 1, "name": "a"}\n')
    with pytest.raises(UsageError, match="no object with level, name and code"):
        load_suite(str(path))
