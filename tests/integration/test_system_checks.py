"""The checks of test_complete_system.py beside the doctor's: each does its real work, and sees what
is broken."""

from __future__ import annotations

import pytest

from coding_framework.commands import system_checks
from coding_framework.commands.doctor import run_check
from coding_framework.commands.doctor_checks import State

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("check", system_checks.SYSTEM, ids=lambda check: check.name)
def test_a_part_of_a_run_works(check: system_checks.Check) -> None:
    result = run_check(check)
    assert result.state is State.WORKS, result.detail


def test_a_conversation_whose_kernel_is_wrong_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    task = system_checks._task()
    wrong = task.model_copy(update={"naive_kernel": "not CUDA either"})
    monkeypatch.setattr(system_checks, "_task", lambda: wrong)
    result = system_checks.check_conversation()
    assert result.state is State.BROKEN
    assert "compile_error" in result.detail
