"""Messages between pool and worker survive anything; verdicts are shared only when all agrees."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.cuda.many.frames import read_frame, write_frame
from coding_framework.cuda.many.pool import _comes_again
from coding_framework.cuda.many.verdict_cache import VerdictCache
from coding_framework.types import (
    Candidate,
    CompileSummary,
    Diagnostic,
    Status,
    Task,
    TensorSpec,
    TestCase,
    Verdict,
)

pytestmark = pytest.mark.unit

CASE = TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),))
TASK = Task(name="t", tier=0, family="f", ops=("x",), description="", reference="a", cases=(CASE,))


@given(st.text())
def test_any_text_goes_through_a_frame(text: str) -> None:
    stream = io.BytesIO()
    write_frame(stream, {"code": text + "\udc80\0"})
    stream.seek(0)
    assert read_frame(stream) == {"code": text + "\udc80\0"}
    assert read_frame(stream) is None


def test_a_frame_cut_short_is_the_end() -> None:
    stream = io.BytesIO()
    write_frame(stream, {"a": 1})
    assert read_frame(io.BytesIO(stream.getvalue()[:-1])) is None


def _verdict(code: str) -> tuple[Candidate, Verdict]:
    candidate = Candidate(code=code)
    return candidate, Verdict(
        status=Status.COMPILE_ERROR,
        reason="no",
        task="t",
        candidate_sha256=candidate.sha256,
        backend="emulator",
    )


def test_a_verdict_is_shared_by_sources_that_differ_in_line_ends_only(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, "here")
    candidate, verdict = _verdict("int x;\nint y;")
    cache.put(TASK, candidate, verdict)
    other = Candidate(code="int x;  \r\nint y;")
    found = cache.get(TASK, other, "emulator")
    assert found is not None
    assert found.candidate_sha256 == other.sha256
    assert found.model_copy(update={"candidate_sha256": candidate.sha256}) == verdict


def test_another_source_task_or_backend_shares_nothing(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, "here")
    candidate, verdict = _verdict("int x;")
    cache.put(TASK, candidate, verdict)
    assert cache.get(TASK, Candidate(code="int  x;"), "emulator") is None
    assert cache.get(TASK, candidate, "cuda") is None
    assert VerdictCache(tmp_path, "there").get(TASK, candidate, "emulator") is None
    assert cache.get(TASK.model_copy(update={"reference": "b"}), candidate, "emulator") is None


def test_other_settings_or_another_toolkit_share_nothing(tmp_path: Path) -> None:
    candidate, verdict = _verdict("int x;")
    VerdictCache(tmp_path, "seed 1, nvcc 13").put(TASK, candidate, verdict)
    assert VerdictCache(tmp_path, "seed 1, nvcc 13").get(TASK, candidate, "emulator") == verdict
    assert VerdictCache(tmp_path, "seed 2, nvcc 13").get(TASK, candidate, "emulator") is None


@pytest.mark.parametrize(
    ("status", "errors", "kept"),
    [
        (Status.COMPILE_ERROR, 1, True),
        (Status.COMPILE_ERROR, 0, False),  # the compiler gave no reason: perhaps the machine's
        (Status.COMPILE_TIMEOUT, 0, False),
        (Status.TIMEOUT, 0, False),
        (Status.MEMORY_LIMIT, 0, False),
        (Status.RUNTIME_ERROR, 0, True),
        (Status.REJECTED, 0, True),
    ],
)
def test_only_what_any_machine_would_say_is_kept(status: Status, errors: int, kept: bool) -> None:
    found = (Diagnostic(severity="error", line=1, message="no"),) * errors
    _, verdict = _verdict("int x;")
    verdict = verdict.model_copy(update={"status": status, "compile": CompileSummary(errors=found)})
    assert _comes_again(verdict) is kept


def test_a_damaged_entry_is_judged_again(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, "here")
    candidate, verdict = _verdict("int x;")
    cache.put(TASK, candidate, verdict)
    entry = next(tmp_path.rglob("*.json"))
    entry.write_text(entry.read_text()[:-10])
    assert cache.get(TASK, candidate, "emulator") is None
