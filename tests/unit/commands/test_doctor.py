"""The doctor's own logic. That its checks find real faults is in tests/system/test_doctor.py."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from coding_framework.commands import doctor as doc
from coding_framework.commands.doctor import CheckResult
from coding_framework.commands.doctor_checks import Check, Finding, State, check_disk, works
from coding_framework.errors import InfrastructureError, MissingToolError

pytestmark = pytest.mark.unit


def result(state: State, *, needed: bool) -> CheckResult:
    return CheckResult(name="x", state=state, needed=needed, detail="d", fix="do [this]")


def raising(error: Exception) -> Check:
    def run() -> Finding:
        raise error

    return Check("x", True, run)


@pytest.mark.parametrize(
    ("state", "needed", "ready"),
    [
        (State.WORKS, True, True),
        (State.WEAK, True, True),
        (State.MISSING, True, False),
        (State.BROKEN, True, False),
        (State.MISSING, False, True),
        (State.BROKEN, False, True),
    ],
)
def test_only_a_needed_part_that_is_missing_or_broken_stops_the_main_job(
    state: State, needed: bool, ready: bool
) -> None:
    assert doc.is_ready((result(State.WORKS, needed=True), result(state, needed=needed))) is ready


def test_a_missing_tool_is_missing_and_its_sentence_is_the_fix() -> None:
    found = doc.run_check(raising(MissingToolError("install g++")))
    assert (found.state, found.fix) == (State.MISSING, "install g++")


def test_a_fault_of_ours_is_broken() -> None:
    assert doc.run_check(raising(InfrastructureError("no room"))).state is State.BROKEN


def test_an_unforeseen_error_is_broken_and_does_not_end_the_other_checks() -> None:
    fine = Check("y", True, lambda: works("yes"))
    results = doc.run_checks((raising(ZeroDivisionError("boom")), fine))
    assert [r.state for r in results] == [State.BROKEN, State.WORKS]
    assert "boom" in results[0].detail


def test_results_keep_the_order_of_the_checks() -> None:
    names = [f"c{i}" for i in range(8)]
    checks = tuple(Check(n, False, lambda: works("yes")) for n in names)
    assert [r.name for r in doc.run_checks(checks)] == names


def test_a_cache_folder_that_cannot_be_made_is_broken_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "file" / "cache"))
    found = doc.run_check(Check("disk", True, check_disk))
    assert found.state is State.BROKEN
    assert "CUDA_RL_CACHE" in found.fix


def test_table_names_what_is_to_be_mended_and_brackets_survive() -> None:
    out = io.StringIO()
    doc.show((result(State.BROKEN, needed=True),), Console(file=out, width=100))
    assert "do [this]" in out.getvalue()
    assert "not ready; to be mended first: x" in out.getvalue()


def test_json_is_one_object_and_the_status_says_whether_the_machine_is_ready(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert doc.doctor(as_json=True, checks=(raising(MissingToolError("get it")),)) == 3
    printed = json.loads(capsys.readouterr().out)
    assert printed["ready"] is False
    assert printed["checks"][0]["fix"] == "get it"
