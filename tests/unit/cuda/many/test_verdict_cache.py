"""Verdicts are shared only when all agrees."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretBytes

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.verdict_cache import VerdictCache, comes_again, conditions_of
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


def _verdict(code: str) -> tuple[Candidate, Verdict]:
    candidate = Candidate(code=code)
    return candidate, Verdict(
        status=Status.COMPILE_ERROR,
        reason="no",
        task="t",
        candidate_sha256=candidate.sha256,
        backend="emulator",
    )


_BLANKS = st.text(" \t\r\n\f\v\0\u00a0\u2028\ufeff\udc80", min_size=1, max_size=3)


@settings(max_examples=1000)
@given(st.text(), _BLANKS, st.data())
def test_sources_that_differ_in_one_byte_share_no_verdict(
    code: str, blanks: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(code)))
    other = Candidate.model_construct(code=code[:at] + blanks + code[at:])
    with TemporaryDirectory() as folder:
        cache = VerdictCache(Path(folder), "here")
        candidate, verdict = _verdict(code)
        cache.put(TASK, candidate, verdict)
        assert cache.get(TASK, candidate, "emulator") == verdict
        assert cache.get(TASK, other, "emulator") is None


def test_a_verdict_on_another_source_is_never_given_out(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, "here")
    candidate, verdict = _verdict("int x;")
    cache.put(TASK, candidate, verdict.model_copy(update={"candidate_sha256": "0" * 64}))
    assert cache.get(TASK, candidate, "emulator") is None


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
    assert comes_again(verdict) is kept


def test_a_damaged_entry_is_judged_again(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, "here")
    candidate, verdict = _verdict("int x;")
    cache.put(TASK, candidate, verdict)
    entry = next(tmp_path.rglob("*.json"))
    entry.write_text(entry.read_text()[:-10])
    assert cache.get(TASK, candidate, "emulator") is None


def test_a_bounded_folder_forgets_what_was_not_asked_for_longest(tmp_path: Path) -> None:
    candidates = [_verdict(f"int x{i};") for i in range(6)]
    size = len(candidates[0][1].model_dump_json())
    cache = VerdictCache(tmp_path, "here", most_bytes=4 * size)
    for age, (candidate, verdict) in enumerate(candidates[:4]):
        cache.put(TASK, candidate, verdict)
        (path,) = set(tmp_path.rglob("*.json")) - {p for p in tmp_path.rglob("*.json") if _old(p)}
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.get(TASK, candidates[0][0], "emulator") is not None  # now the youngest
    for candidate, verdict in candidates[4:]:
        cache.put(TASK, candidate, verdict)
    there = [cache.get(TASK, candidate, "emulator") is not None for candidate, _ in candidates]
    assert there[0]
    assert there[-2:] == [True, True]
    assert not there[1]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.json")) <= 4 * size


def _old(path: Path) -> bool:
    return path.stat().st_mtime < 10_000


def test_a_configuration_without_secret_or_seed_shares_verdicts_whatever_was_drawn() -> None:
    anew = conditions_of(JudgeConfig(backend="emulator"))
    assert conditions_of(JudgeConfig(backend="emulator")) == anew
    secrets = [SecretBytes(bytes([i]) * 32) for i in range(2)]
    drawn = [conditions_of(JudgeConfig(backend="emulator", secret=s)) for s in secrets]
    seeds = [conditions_of(JudgeConfig(backend="emulator", seed=i)) for i in range(2)]
    assert len({anew, *drawn, *seeds}) == 5
    assert not any(s.get_secret_value().hex() in text for s in secrets for text in drawn)
