"""A device that is full of other judges' work is waited for; it is nobody's fault."""

from __future__ import annotations

import time

import pytest

from coding_framework.cuda.judge import Judge
from coding_framework.errors import DeviceFullError
from coding_framework.types import Candidate
from corpus.records import AFFINE

pytestmark = pytest.mark.unit


def _judge(monkeypatch: pytest.MonkeyPatch, full_times: int) -> tuple[Judge, list[str]]:
    """A judge whose device is full for the first tries, and what it does about it."""
    judge, did = Judge.__new__(Judge), []

    def once(task: object, candidate: object) -> str:
        did.append("try")
        if did.count("try") <= full_times:
            raise DeviceFullError("no memory left")
        return "verdict"

    monkeypatch.setattr(judge, "_judge", once)
    monkeypatch.setattr(judge, "_make_room", lambda: did.append("room"))
    monkeypatch.setattr(time, "sleep", lambda seconds: did.append("wait"))
    return judge, did


def test_the_candidate_is_judged_again_after_memory_was_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, did = _judge(monkeypatch, full_times=2)
    assert judge.judge(AFFINE, Candidate(code="")) == "verdict"
    assert did == ["try", "room", "wait"] * 2 + ["try"]


def test_a_device_that_stays_full_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, did = _judge(monkeypatch, full_times=100)
    with pytest.raises(DeviceFullError):
        judge.judge(AFFINE, Candidate(code=""))
    assert did.count("try") == 5
