"""How long the work still takes: recorded clocks, replayed."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from coding_framework.monitoring.progress import Progress

pytestmark = pytest.mark.unit

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def estimates(progress: Progress, clock: Clock, ends: Sequence[float]) -> list[tuple[float, float]]:
    """(told, true) seconds left each time that a unit has ended, where any is told. ends: seconds
    since `clock.now`."""
    began, found = clock.now, []
    for end in ends:
        clock.now = began + end
        progress.advance()
        told = progress.activity().eta_s
        if told is not None:
            found.append((told, ends[-1] - end))
    return found


def within_a_factor_of_two(found: Sequence[tuple[float, float]]) -> bool:
    return all(true / 2 <= told <= 2 * true for told, true in found)


def made(clock: Clock, total: int, **how: int) -> Progress:
    return Progress("work", total, "units", stream=io.StringIO(), clock=clock, **how)


def recorded_steps(name: str, key: str) -> list[float]:
    steps = json.loads((RESULTS / name).read_text())["steps"]
    return [step[key] for step in steps]


def test_a_slow_first_step_of_rl_is_no_measure_of_the_others() -> None:
    """Six steps of 19.6 s and then 3.1 s each, 160 s after the command."""
    steps = recorded_steps("rollout_pool.h100.json", "timing_s/step")
    clock = Clock()
    progress = made(clock, len(steps))
    clock.now += 160 - steps[0]
    progress.begin()
    found = estimates(progress, clock, list(itertools.accumulate(steps)))
    assert len(found) == len(steps) - 1
    assert within_a_factor_of_two(found[1:])


def test_steps_of_rl_that_become_quicker_are_told_from_the_second_on() -> None:
    steps = recorded_steps("learning_rl_4.h200.json", "step_s")
    clock = Clock()
    progress = made(clock, len(steps))
    found = estimates(progress, clock, list(itertools.accumulate(steps)))
    assert within_a_factor_of_two(found[1:-1])


def test_nothing_is_told_before_half_of_what_is_worked_on_at_once_is_done() -> None:
    """The share of 256 answers that had come after so many seconds, on an H100."""
    step = json.loads((RESULTS / "answer_arrivals.chunk_8.h100.json").read_text())["steps"][0]
    clock = Clock()
    progress = made(clock, step["answers"], at_once=step["answers"])
    last = step["came_s"]["100"]
    for share, came in step["came_s"].items():
        clock.now = 1000.0 + came
        progress.update(step["answers"] * int(share) // 100)
        told = progress.activity().eta_s
        assert (told is None) == (int(share) not in (50, 75))
        assert told is None or (last - came) / 2 <= told <= 2 * (last - came)


def test_waves_of_equal_units_are_told_by_whole_waves() -> None:
    clock = Clock()
    progress = made(clock, 40, at_once=8)
    ends = [60.0 * (i // 8 + 1) + 0.1 * (i % 8) for i in range(40)]
    found = estimates(progress, clock, ends)
    assert len(found) == 40 - 4, "the first is told after half a wave"
    assert within_a_factor_of_two(found[4:-1:8]), "after each wave"


def test_a_start_before_the_work_and_what_an_earlier_run_did_are_not_counted() -> None:
    clock = Clock()
    progress = made(clock, 30, done=4)
    clock.now += 500
    progress.update(10)  # found on the disk
    progress.begin()
    assert progress.activity().eta_s is None
    assert within_a_factor_of_two(estimates(progress, clock, [7.0 * i for i in range(1, 21)])[:-1])
    assert "left" not in progress.line()
    assert "so far" in progress.line()


def test_the_estimate_goes_down_between_two_units() -> None:
    clock = Clock()
    progress = made(clock, 10)
    estimates(progress, clock, [10.0, 20.0])
    assert progress.activity().eta_s == pytest.approx(80.0)
    clock.now += 6
    assert progress.activity().eta_s == pytest.approx(74.0)
