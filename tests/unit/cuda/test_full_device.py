"""A device that is full of other judges' work is waited for; it is nobody's fault."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import Any

import pytest

from coding_framework.cuda.judge import Judge
from coding_framework.cuda.many import worker
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


def test_a_worker_without_a_job_gives_its_memory_back_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[Any] = []
    did: list[str] = []

    class Jobs:
        def get(self, timeout: float | None = None) -> str:
            waited.append(timeout)
            if timeout is not None and len(waited) < 4:
                raise queue.Empty
            return "job"

    def fails() -> None:
        did.append("rest")
        raise RuntimeError("the context is lost")

    resting: Any = SimpleNamespace(rest=lambda: did.append("rest"))
    assert worker._next(Jobs(), resting) == "job"  # type: ignore[arg-type]
    assert (waited, did) == ([worker._REST_S, None], ["rest"])
    resting.rest = fails
    assert worker._next(Jobs(), resting) == "job"  # type: ignore[arg-type]
    assert worker._next(Jobs(), resting) == "job"  # type: ignore[arg-type]
    assert did == ["rest"] * 2, "there was a job at once"


def test_a_judge_at_rest_keeps_no_references_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, did = Judge.__new__(Judge), []
    place: Any = SimpleNamespace(rest=lambda: did.append("rest"))
    judge._references = {b"secret": "cache"}  # type: ignore[dict-item]
    for there in (None, place):
        monkeypatch.setattr(judge, "_devices", lambda there=there: SimpleNamespace(place=there))
        judge.rest()
        assert (len(judge._references), did) == ((1, []) if there is None else (0, ["rest"]))
