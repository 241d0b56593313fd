"""What one caller may have, in all processes of a server and over its restarts."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from coding_framework.deployment.limits import DAY_S, Limits, Meter, OverLimitError, Quota
from coding_framework.deployment.tokens import Token

pytestmark = pytest.mark.unit


def token(**limits: float) -> Token:
    return Token.model_validate(
        {"id": "t", "sha256": "", "scopes": ["complete"], "created_at": 0.0, **limits}
    )


def test_two_processes_count_requests_together(tmp_path: Path) -> None:
    limits = Limits(concurrent=1, requests_per_s=1.0)
    one, other = (Meter(limits, tmp_path / "l", clock=lambda: 0.0) for _ in range(2))
    with one.request("a", None), pytest.raises(OverLimitError, match="run already"):
        other.request("a", None).__enter__()
    with other.request("a", None):
        pass
    with pytest.raises(OverLimitError, match="over 1 requests a second"):
        one.request("a", None).__enter__()


def test_two_processes_count_candidates_together(tmp_path: Path) -> None:
    limits = Limits(candidates_per_min=10)
    one, other = (Meter(limits, tmp_path / "l", clock=lambda: 0.0) for _ in range(2))
    one.candidates("a", None, 10)
    with pytest.raises(OverLimitError) as over:
        other.candidates("a", None, 1)
    assert over.value.retry_after_s == pytest.approx(6.0)
    other.candidates("b", None, 1)


def test_a_request_that_is_refused_is_not_counted_as_running(tmp_path: Path) -> None:
    meter = Meter(Limits(concurrent=1, requests_per_s=1.0), clock=lambda: 0.0)
    for _ in range(2):
        with meter.request("a", None):
            pass
    with pytest.raises(OverLimitError, match="a second"):
        meter.request("a", None).__enter__()


def hold_and_die(path: Path) -> None:
    Meter(Limits(concurrent=1), path).request("a", None).__enter__()
    os._exit(0)


def test_requests_of_a_process_that_was_killed_run_no_more(tmp_path: Path) -> None:
    path = tmp_path / "l"
    process = multiprocessing.get_context("spawn").Process(target=hold_and_die, args=(path,))
    process.start()
    process.join(60)
    with Meter(Limits(concurrent=1), path).request("a", None):
        pass


def test_a_tokens_own_limits_win() -> None:
    meter = Meter(Limits(concurrent=1))
    two = token(concurrent=2)
    with meter.request("a", two), meter.request("a", two), pytest.raises(OverLimitError):
        meter.request("a", two).__enter__()


def test_tokens_of_a_day_are_used_up_and_come_back_the_next_day(tmp_path: Path) -> None:
    now = [DAY_S * 100.25]
    quota = Quota(Limits(tokens_per_day=10), tmp_path / "used", clock=lambda: now[0])
    quota.add("a", 9)
    quota.require("a", None)
    quota.add("a", 1)
    with pytest.raises(OverLimitError, match="today") as over:
        quota.require("a", None)
    assert over.value.retry_after_s == pytest.approx(0.75 * DAY_S)
    quota.require("b", None)
    quota.require("a", token(tokens_per_day=11))
    now[0] += DAY_S
    quota.require("a", None)


def test_tokens_of_a_day_are_counted_by_all_processes_and_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "used"
    one, other = (Quota(Limits(tokens_per_day=10), path) for _ in range(2))
    one.add("a", 6)
    other.add("a", 4)
    one.keep()
    other.keep()
    assert other.spent("a") == 10
    assert one.spent("a") == 6
    one.keep()
    assert one.spent("a") == 10
    one.close()
    assert Quota(Limits(), path).spent("a") == 10


def test_where_used_tokens_cannot_be_written_they_are_counted_in_memory(tmp_path: Path) -> None:
    quota = Quota(Limits(tokens_per_day=10), tmp_path / "used")
    quota._db.execute("PRAGMA query_only=1")
    quota.add("a", 10)
    quota.keep()
    with pytest.raises(OverLimitError):
        quota.require("a", None)
    quota._db.execute("PRAGMA query_only=0")
    quota.keep()
    assert Quota(Limits(), tmp_path / "used").spent("a") == 10
