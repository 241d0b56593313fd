"""Two judgements of one answer: every disagreement has its reason, or is told as unexplained."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.unit
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def against(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("against_kernelbench")


def test_answers_and_problems_are_python_of_all_kinds(against: ModuleType) -> None:
    made = list(against.made_answers(3))
    # Its fault would be none: `load_inline` writes the include.
    assert not any("missing_include" in answer.name for answer in made)
    assert {answer.kind for answer in made} == {"honest", "broken", "special", "stale", "torch"}
    assert len({answer.name for answer in made}) == len(made)
    for answer in made:
        ast.parse(against.problem(answer))
        names = [n.name for n in ast.parse(answer.code).body if isinstance(n, ast.ClassDef)]
        assert names == ["ModelNew"]
        assert "PYBIND11_MODULE" not in answer.code


@pytest.mark.parametrize(
    ("kind", "accepted", "ours", "why"),
    [
        ("honest", True, {"status": "correct"}, ""),
        ("broken", False, {"status": "wrong_output"}, ""),
        ("torch", True, {"status": "rejected"}, "torch computes a part"),
        ("honest", True, {"status": "rejected"}, "unexplained"),
        ("honest", True, {"status": "fault"}, "fault"),
        ("torch", True, {"status": "unsupported"}, "unsupported"),
        ("stale", True, {"status": "wrong_output"}, "cheating: right for the calls"),
        ("special", True, {"status": "wrong_output", "failed_shapes": [[3]]}, "shape-special"),
        ("honest", True, {"status": "wrong_output", "max_abs_error": 5e-5}, "tolerance: theirs"),
        ("honest", True, {"status": "wrong_output", "max_abs_error": 5.0}, "unexplained"),
        (
            "broken",
            True,
            {"status": "runtime_error", "reason": "illegal read"},
            "memory: an access",
        ),
        ("broken", True, {"status": "runtime_error", "reason": "it raised"}, "unexplained"),
        ("broken", True, {"status": "wrong_output", "reason": "got nan"}, "memory: an element"),
        ("broken", False, {"status": "correct"}, "unexplained"),
    ],
)
def test_each_disagreement_has_its_reason(
    against: ModuleType, kind: str, accepted: bool, ours: dict[str, object], why: str
) -> None:
    answer = next(a for a in against.made_answers(2) if a.kind == kind)
    found = against.explanation(
        answer, {"correctness": accepted, "why": ""}, {"reason": "", **ours}
    )
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_their_package_is_imported_without_what_it_would_load(against: ModuleType) -> None:
    """torch asks every module for its file while it is imported: a stand-in has none."""
    code = against.STUBS + "import inspect; inspect.getmodule(inspect.currentframe()); import torch"
    subprocess.run([sys.executable, "-c", code], check=True)
