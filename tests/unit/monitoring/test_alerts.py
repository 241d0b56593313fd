"""Each rule finds what it is for, and not what would fool it; the book tells of it once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from coding_framework.monitoring import alerts
from coding_framework.monitoring.alerts import AlertBook, StepWatch
from coding_framework.store.records import Measures, StepRecord
from coding_framework.store.run_status import Alert, GPUSample, SystemSample, read_alerts

pytestmark = pytest.mark.unit


def steps(
    count: int = 4, measures: dict[str, Any] | None = None, **fields: Any
) -> list[StepRecord]:
    measured = Measures(**(measures or {}))
    return [StepRecord(step=n, measures=measured, **fields) for n in range(1, count + 1)]


def by_step(**columns: Sequence[Any]) -> list[StepRecord]:
    rows = zip(*columns.values(), strict=True)
    return [
        StepRecord(step=n, **dict(zip(columns, row, strict=True)))
        for n, row in enumerate(rows, start=1)
    ]


@pytest.mark.parametrize(
    ("rates", "error", "worse"),
    [
        ([0.7] * 4 + [0.2] * 4, 0.1, True),
        ([0.7] * 4 + [0.6] * 4, 0.1, False),
        ([0.2] * 4 + [0.7] * 4, 0.1, False),
        ([0.7] * 4 + [0.2] * 3, 0.1, False),
        ([0.7] * 4 + [0.2] * 4, None, False),
        ([0.7] * 4 + [0.2] * 2 + [0.7] * 4, 0.1, False),
    ],
    ids=["worse", "by chance", "better", "too few", "unknown", "back again"],
)
def test_policy_is_called_worse_where_chance_does_not_explain_it(
    rates: list[float], error: float | None, worse: bool
) -> None:
    found = alerts.got_worse(by_step(solved_rate=rates, solved_error=[error] * len(rates)))
    assert (found is not None) is worse


@pytest.mark.parametrize(
    ("compiled", "solved", "only"),
    [
        ([0.2] * 4 + [0.8] * 4, 0.0, True),
        ([0.19, 0.26, 0.2, 0.2, 0.56, 0.63, 0.78, 0.84], 0.0, True),
        ([0.2] * 4 + [0.8] * 4, 0.3, False),
        ([0.2] * 4 + [0.3] * 4, 0.0, False),
        ([0.2] * 3 + [0.8] * 4, 0.0, False),
    ],
    ids=["it does", "a run on a GPU from a base model", "it solves", "by chance", "too few"],
)
def test_policy_is_said_to_compile_alone_where_nothing_is_correct(
    compiled: list[float], solved: float, only: bool
) -> None:
    rows = by_step(compile_rate=compiled, solved_rate=[solved] * len(compiled))
    assert (alerts.paid_for_compiling(rows) is not None) is only


@pytest.mark.parametrize(
    ("count", "groups", "equal", "told"),
    [
        (4, 10, 9, True),
        (4, 10, 8, False),
        (3, 10, 10, False),
        (4, 1, 1, False),
        (4, 0, 0, False),
    ],
    ids=["most", "not more than the bar", "too short", "too few groups", "none known"],
)
def test_groups_that_teach_nothing(count: int, groups: int, equal: int, told: bool) -> None:
    rows = steps(count, {"groups": groups, "groups_without_advantage": equal})
    assert (alerts.no_advantage(rows) is not None) is told


def test_one_step_with_advantage_among_the_last_is_enough() -> None:
    rows = steps(4, {"groups": 10, "groups_without_advantage": 10})
    good = rows[2].model_copy(update={"measures": Measures(groups=10)})
    assert alerts.no_advantage([*rows[:2], good, rows[3]]) is None


@pytest.mark.parametrize(
    ("verdicts", "cheats", "told"),
    [(100, 3, True), (1, 1, True), (20, 0, False), (200, 4, False)],
)
def test_cheats(verdicts: int, cheats: int, told: bool) -> None:
    rows = steps(4, {"statuses": {"correct": verdicts}, "cheats": cheats})
    assert (alerts.cheating(rows) is not None) is told


def test_one_cheat_among_few_verdicts_is_no_alarm() -> None:
    assert alerts.cheating(steps(1, {"statuses": {"cheating": 2}, "cheats": 2})) is None


@pytest.mark.parametrize(
    ("turns", "masked", "told"), [(40, 5, True), (40, 4, False), (2, 1, False)]
)
def test_masked_turns(turns: int, masked: int, told: bool) -> None:
    assert (alerts.masked_turns(steps(4, turns=turns, masked_turns=masked)) is not None) is told


@pytest.mark.parametrize(
    ("wait_s", "rollout_s", "told"), [(50.0, 100.0, True), (20.0, 100.0, False), (50.0, 0.0, False)]
)
def test_verdicts_that_wait(wait_s: float, rollout_s: float, told: bool) -> None:
    rows = steps(4, {"verdict_wait_s": {"p95": wait_s}}, times={"rollout_s": rollout_s})
    assert (alerts.judge_is_slow(rows) is not None) is told
    assert alerts.judge_is_slow(rows[:3]) is None


@pytest.mark.parametrize(("wait_s", "told"), [(2.0, False), (20.0, True)])
def test_verdicts_on_answers_that_are_written_beside_the_step_before(
    wait_s: float, told: bool
) -> None:
    times = {"rollout_s": 0.02, "step_s": 47.0}
    rows = steps(4, {"verdict_wait_s": {"p95": wait_s}}, times=times)
    assert (alerts.judge_is_slow(rows) is not None) is told


@pytest.mark.parametrize(
    ("norms", "told"),
    [
        ([1.0] * 5 + [10.5], True),
        ([1.0] * 5 + [9.5], False),
        ([1.0] * 4 + [50.0], False),
        ([1.0, math.nan], True),
        ([math.inf], True),
        ([0.0] * 20 + [0.5], False),
        ([1.0] * 5 + [50.0, 1.0], False),
    ],
    ids=["jump", "none", "too early", "nan", "inf", "the first gradient", "back again"],
)
def test_a_gradient_that_jumps_or_is_not_finite(norms: list[float], told: bool) -> None:
    assert (alerts.unsteady_gradient(by_step(grad_norm=norms)) is not None) is told


def test_a_kl_that_grows_from_nothing_is_no_alarm_and_one_that_jumps_is() -> None:
    assert alerts.unsteady_kl(by_step(kl=[1e-4] * 6 + [5e-2])) is None
    assert alerts.unsteady_kl(by_step(kl=[1e-2] * 6 + [0.5])) is not None
    assert alerts.unsteady_kl(by_step(kl=[None] * 6)) is None


def test_a_step_that_does_not_come_is_told_of_after_ten_times_the_median() -> None:
    rows = steps(3, times={"step_s": 20.0})
    assert alerts.no_step(rows, 190.0) is None
    assert alerts.no_step(rows, 210.0) is not None
    assert alerts.no_step(rows[:2], 1e6) is None, "loading takes as long as it takes"
    assert alerts.no_step(steps(3, times={"step_s": 1.0}), 60.0) is None, "of seconds"


def test_with_a_curriculum_solving_less_means_nothing() -> None:
    rows = by_step(solved_rate=[0.7] * 4 + [0.2] * 4, solved_error=[0.05] * 8)
    assert [f.rule for f in alerts.of_steps(rows)] == ["policy_got_worse"]
    assert alerts.of_steps(rows, curriculum=True) == []
    assert alerts.of_steps([]) == []


# --- the machine


def sampled(seconds: int, *, every: int = 10, **gpu: Any) -> list[SystemSample]:
    card = GPUSample(index=0, **gpu)
    return [SystemSample(t=float(t), gpus=(card,)) for t in range(0, seconds + 1, every)]


@pytest.mark.parametrize(
    ("seconds", "gpu", "told"),
    [
        (300, {"util": 5.0, "processes": 1}, True),
        (300, {"util": 5.0}, True),
        (300, {"util": 50.0, "processes": 1}, False),
        (300, {"util": 5.0, "processes": 0}, False),
        (300, {}, False),
        (290, {"util": 5.0, "processes": 1}, False),
    ],
    ids=["idle", "processes unknown", "busy", "another's GPU", "not told", "too short"],
)
def test_gpus_that_do_nothing(seconds: int, gpu: dict[str, Any], told: bool) -> None:
    assert (alerts.gpu_idle(sampled(seconds, **gpu)) is not None) is told


def test_no_gpu_is_no_idle_gpu() -> None:
    assert alerts.gpu_idle([SystemSample(t=float(t)) for t in range(0, 400, 10)]) is None


def test_a_disk_that_is_nearly_full() -> None:
    assert alerts.disk_nearly_full([SystemSample(t=1.0, disk_free=4 * 10**9)]) is not None
    assert alerts.disk_nearly_full([SystemSample(t=1.0, disk_free=6 * 10**9)]) is None
    assert alerts.disk_nearly_full([SystemSample(t=1.0)]) is None
    assert alerts.disk_nearly_full([]) is None


@pytest.mark.parametrize(
    ("throttle", "told"),
    [(("hw_thermal_slowdown",), True), (("sw_power_cap",), False), ((), False), (None, False)],
)
def test_a_gpu_that_lowers_its_clocks(throttle: tuple[str, ...] | None, told: bool) -> None:
    assert (alerts.gpu_throttled(sampled(60, throttle=throttle)) is not None) is told


def test_a_moment_of_throttling_is_no_alarm() -> None:
    calm, hot = sampled(60, throttle=()), sampled(60, throttle=("hw_slowdown",))
    assert alerts.gpu_throttled([*calm[:-1], hot[-1]]) is None


# --- the book


def finding(rule: str) -> alerts.Finding:
    return alerts.Finding(rule, "it is so", "do this", f"{rule}!", {"x": 1.0})


def test_a_finding_is_told_when_it_begins_and_when_it_begins_again(tmp_path: Path) -> None:
    told: list[Alert] = []
    book = AlertBook(tmp_path, told.append)
    with capture_logs() as logged:
        assert [a.rule for a in book.note([finding("a")], step=1)] == ["a"]
        assert book.note([finding("a")], step=2) == []
        assert [a.rule for a in book.note([finding("a"), finding("b")], step=3)] == ["b"]
        assert book.words == "a!, b!"
        book.note([], step=4)
        assert book.words == ""
        book.note([finding("a")], step=5)
    stored = list(read_alerts(tmp_path))
    assert [(a.rule, a.step) for a in stored] == [("a", 1), ("b", 3), ("a", 5)]
    assert stored == told
    assert [(line["event"], line["log_level"]) for line in logged] == [
        ("a", "warning"), ("b", "warning"), ("a", "warning"),
    ]  # fmt: skip


def test_a_folder_that_cannot_be_written_costs_the_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with capture_logs() as logged:
        AlertBook(tmp_path / "file").note([finding("a")])
    assert [line["event"] for line in logged] == ["a", "alert_not_stored"]


def test_what_stands_is_on_the_progress_line(tmp_path: Path) -> None:
    watch = StepWatch(AlertBook(tmp_path), curriculum=False)
    assert watch.words() == ""
    watch.stepped(by_step(grad_norm=[math.nan]))
    with capture_logs():
        assert watch.words() == "gradient norm nan"
    assert [(a.rule, a.step, a.values["last"]) for a in read_alerts(tmp_path)] == [
        ("unsteady_gradient_norm", 1, None)
    ]
    watch.stepped(by_step(grad_norm=[math.nan, 1.0]))
    assert watch.words() == ""
