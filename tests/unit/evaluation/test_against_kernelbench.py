"""Two judgements of one answer: every disagreement has its reason, or is told as unexplained."""

from __future__ import annotations

import ast
import importlib
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
    assert {answer.kind for answer in made} == {"honest", "broken", "special", "stale", "torch"}
    assert len({answer.name for answer in made}) == len(made)
    for answer in made:
        ast.parse(against.problem(answer.task))
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
        ("broken", False, {"status": "correct"}, "unexplained"),
    ],
)
def test_each_disagreement_has_its_reason(
    against: ModuleType, kind: str, accepted: bool, ours: dict[str, object], why: str
) -> None:
    answer = next(a for a in against.made_answers(2) if a.kind == kind)
    found = against.explanation(answer, {"correctness": accepted, "why": ""}, ours)
    assert found.startswith(why)
    assert bool(found) is bool(why)
