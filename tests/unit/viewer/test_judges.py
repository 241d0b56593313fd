"""Several judges of a run are drawn as one: no line leaps between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.store.run_status import JudgeSample, append_judge
from coding_framework.viewer.charts import system_charts
from coding_framework.viewer.judges import Judges
from coding_framework.viewer.runs import FoundRun

pytestmark = pytest.mark.unit


def line(t: float, pool: str, queued: int, p95: float = 1.0) -> JudgeSample:
    return JudgeSample(
        t=t, pool=pool, queued=queued, running=2, workers=2, done=1, done_per_s=0.5,
        wait_s={"p95": p95},
    )  # fmt: skip


def test_one_judge_is_told_as_it_wrote() -> None:
    lines = [line(5.0 * i, "a", i) for i in range(4)]
    assert Judges.of(lines) == Judges(lines, most=1, pause=5.0)


def test_judges_that_work_at_once_are_summed_and_the_slowest_gives_the_times() -> None:
    lines = [line(5.0 * i + at, pool, queued, p95) for i in range(4)
             for at, pool, queued, p95 in ((0.0, "a", 30, 9.0), (0.1, "b", 4, 2.0))]  # fmt: skip
    told = Judges.of(lines)
    assert (told.most, told.pause) == (2, 5.0)
    assert [s.queued for s in told.samples] == [30, *[34] * 7]
    assert [s.done_per_s for s in told.samples[1:]] == [1.0] * 7
    assert [s.wait_s for s in told.samples] == [{"p95": 9.0}] * 8


def test_a_judge_that_ended_does_not_count_beside_its_successor() -> None:
    first, second = ([line(start + 5.0 * i, pool, 7) for i in range(3)]
                     for start, pool in ((0.0, "a"), (60.0, "b")))  # fmt: skip
    told = Judges.of([*first, *second])
    assert told.most == 1
    assert [s.queued for s in told.samples] == [7] * 6


def test_the_charts_say_of_how_many_judges_they_are(tmp_path: Path) -> None:
    for i in range(20):
        append_judge(tmp_path, line(100.0 + 5 * i, "a", 3))
        append_judge(tmp_path, line(100.0 + 5 * i + 0.01, "b", 4))
    charts = {c["id"]: c for c in system_charts(FoundRun("r", "r", "", "rl", tmp_path), [])}
    assert charts["queue"]["title"] == "Judge: queue, 2 judges together"
    assert charts["judge-times"]["title"] == "Judge: times, the slowest of 2 judges"
    queued = charts["queue"]["series"][0]["values"]
    assert queued == [3.0, *[7.0] * 39]  # no gap between two that write at almost the same time
