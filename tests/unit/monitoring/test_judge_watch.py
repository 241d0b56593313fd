"""What a judge does is told to its run: queue, rate and times; an idle one says nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from coding_framework.monitoring.judge_watch import JudgeWatch
from coding_framework.store.folder import WatchFolder
from coding_framework.store.run_status import read_judge
from coding_framework.types import CompileSummary, Receipt, Status, Verdict
from support.waiting import until

pytestmark = pytest.mark.unit


def verdict(status: Status = Status.COMPILE_ERROR, **fields: Any) -> Verdict:
    return Verdict.model_validate(
        {
            "status": status,
            "reason": "r",
            "task": "t",
            "candidate_sha256": "0",
            "backend": "emulator",
            "compile": CompileSummary(latency_s=2.0),
            "receipt": Receipt(duration_s=5.0),
            **fields,
        }
    )


def test_what_waits_runs_and_is_done_is_counted() -> None:
    watch = JudgeWatch(None, workers=2, quarantined=lambda: ["GPU-1"])
    first, second, third = (watch.join() for _ in range(3))
    watch.began(first)
    watch.ended(first, verdict(), known=False)
    watch.leave(first)
    watch.began(second)
    now = watch.sample()
    assert (now.queued, now.running, now.workers, now.done) == (1, 1, 2, 1)
    assert (now.compile_s["p50"], now.judge_s["p95"]) == (2.0, 3.0)
    assert now.statuses == {"compile_error": 1}
    assert now.gpus_quarantined == ("GPU-1",)
    watch.failed()
    watch.leave(second)
    watch.leave(third)  # cancelled while it waited
    after = watch.sample()
    assert (after.queued, after.running, after.faults, after.done_per_s) == (0, 0, 1, 0.0)


def test_a_verdict_from_before_counts_as_done_and_not_in_the_times() -> None:
    watch = JudgeWatch(None, workers=1)
    job = watch.join()
    watch.began(job)
    watch.ended(job, verdict(), known=True)
    now = watch.sample()
    assert (now.done, now.cache_hits, now.judge_s) == (1, 1, {})
    assert now.wait_s["p50"] >= 0.0


def test_lines_are_written_while_there_is_something_to_say(tmp_path: Path) -> None:
    watch = JudgeWatch(tmp_path, workers=1, every_s=0.02)
    time.sleep(0.1)
    assert not WatchFolder(tmp_path).judge.exists()
    job = watch.join()
    until(lambda: list(read_judge(tmp_path)))
    watch.began(job)
    watch.ended(job, verdict(), known=False)
    watch.leave(job)
    watch.close()
    last = list(read_judge(tmp_path))[-1]
    assert (last.done, last.queued, last.running) == (1, 0, 0)


def test_a_folder_that_cannot_be_written_costs_the_lines_and_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with capture_logs() as logged:
        watch = JudgeWatch(tmp_path / "file", workers=1, every_s=0.01)
        job = watch.join()
        until(lambda: logged)
        watch.leave(job)
        watch.close()
    assert [line["event"] for line in logged] == ["judge_watch_ended"]
