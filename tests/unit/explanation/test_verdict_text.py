"""What a user reads of a verdict is harmless, whatever the candidate wrote."""

from __future__ import annotations

import pytest

from coding_framework.data.registry import find_task
from coding_framework.explanation.page import page
from coding_framework.explanation.verdict_text import verdict_text
from coding_framework.types import (
    BenchmarkResult,
    CompileSummary,
    Diagnostic,
    Finding,
    Status,
    TestResult,
    Verdict,
)

pytestmark = pytest.mark.unit


def test_a_verdict_for_people_cannot_act_on_the_terminal():
    hostile = "\x1b[2J\x1b]0;owned\x07 line\nbreak \u202e"
    verdict = Verdict(
        status=Status.WRONG_OUTPUT,
        reason=hostile,
        task="relu",
        candidate_sha256="0" * 64,
        backend="emulator",
        compile=CompileSummary(
            errors=(Diagnostic(severity="error", line=1, message=hostile),), warnings=(hostile,)
        ),
        tests=(
            TestResult(
                case="main",
                seed=1,
                shapes=((4,),),
                dtype="float32",
                max_abs_error=1.0,
                max_rel_error=1.0,
                tolerance=1e-6,
                passed=False,
                detail=hostile,
            ),
        ),
        pitfalls=(Finding(rule="r", severity="low", line=None, message=hostile, basis="source"),),
    )
    text = verdict_text(verdict, find_task("relu"))
    assert text.startswith("wrong_output: <U+001B>[2J")
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "0 of 1 passed" in text


@pytest.mark.parametrize(
    ("speedup", "naive", "said"),
    [
        (None, None, "no naive time: the compiler's kernel was not timed"),
        (None, "code", "no naive time: the task's naive kernel was not correct here"),
        (2.0, "code", None),
    ],
)
def test_a_time_without_a_naive_one_says_why(speedup, naive, said):
    task = find_task("relu").model_copy(update={"naive_kernel": naive})
    passed = TestResult(
        case="main", seed=0, shapes=((4,),), dtype="float32", max_abs_error=0.0, max_rel_error=0.0,
        tolerance=1e-6, passed=True,
    )  # fmt: skip
    verdict = Verdict(
        status=Status.CORRECT, reason="all comparisons passed", task="relu", backend="emulator",
        candidate_sha256="0" * 64, tests=(passed,),
        timing=BenchmarkResult(
            kernel_ms=1.0, kernel_ms_ci95=(1.0, 1.0), modelled=True, speedup_vs_naive=speedup
        ),
    )  # fmt: skip
    for text in (verdict_text(verdict, task), page(verdict, task, "code")):
        assert said in text if said else "no naive time" not in text


def test_what_several_draws_say_alike_stands_once():
    wrong = TestResult(
        case="odd", seed=0, shapes=((3,),), dtype="float32", max_abs_error=None,
        max_rel_error=None, tolerance=None, passed=False, detail="shape (4,), expected (3,)",
    )  # fmt: skip
    other = wrong.model_copy(update={"seed": 1})
    read = Finding(rule="r", severity="high", line=2, message="reads nothing", basis="run")
    verdict = Verdict(
        status=Status.WRONG_OUTPUT, reason="wrong", task="relu", backend="emulator",
        candidate_sha256="0" * 64, tests=(wrong, other, wrong.model_copy(update={"case": "tiny"})),
        pitfalls=(read, read, read.model_copy(update={"line": 3})),
    )  # fmt: skip
    task = find_task("relu")
    lines = [line.strip() for line in verdict_text(verdict, task).splitlines()]
    assert lines.count("odd: shape (4,), expected (3,) (2 times)") == 1
    assert lines.count("tiny: shape (4,), expected (3,)") == 1
    assert lines.count("high      r: reads nothing (3 times)") == 1
    assert page(verdict, task, "one\ntwo\nthree").count("r (high): reads nothing") == 2  # lines
