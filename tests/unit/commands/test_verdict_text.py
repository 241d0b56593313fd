"""What a user reads of a verdict is harmless, whatever the candidate wrote."""

from __future__ import annotations

import pytest

from coding_framework.commands.verdict_text import verdict_text
from coding_framework.types import (
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
    text = verdict_text(verdict)
    assert text.startswith("wrong_output: <U+001B>[2J")
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "0 of 1 passed" in text
