"""Modelled times: sums over a plan, on reports only; nothing here runs a kernel."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from coding_framework.cuda.emulator.modelled_time import modelled_result, modelled_time_ms
from coding_framework.cuda.emulator.timing_model import gpu
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.plan.launch_plan import (
    Copy,
    Fill,
    Launch,
    LaunchPlan,
    LaunchReport,
    PlanOp,
    ReadBack,
    Upload,
)
from coding_framework.cuda.timing.baseline_times import BaselineTimes
from coding_framework.cuda.timing.naive_kernels import NaiveKernels
from coding_framework.cuda.timing.results import TimedCase, summed_counters
from coding_framework.cuda.trial.verdict_draft import VerdictDraft
from coding_framework.errors import DeviceFullError
from coding_framework.types import Candidate, Receipt, Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit

LAUNCH = Launch("k", (1, 1, 1), (32, 1, 1), 0, b"")
PLAN = LaunchPlan((), (LAUNCH, Copy(1, 2, 2_400_000)), ())
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
FADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"


TIMED = TimedCase(
    plan=PLAN,
    bytes_moved=4_800_000,
    replays=(
        (LaunchReport("k", {FFMA: 10.0, FADD: 5.0}, 0.003),),
        (LaunchReport("k", {FFMA: 10.0, FADD: 5.0}, 0.001),),
        (LaunchReport("k", {FFMA: 10.0, FADD: 5.0}, 0.002),),
    ),
)
START_MS = gpu("h200").model["launch_us"] / 1e3


@pytest.mark.parametrize(
    ("op", "bytes_ms"),
    [
        (Copy(1, 2, 2_400_000), 0.001),
        (Fill(1, 0, 4_800_000), 0.001),
        (Upload(1, b"x" * 64_000), 0.001),
        (ReadBack(1, 64_000), 0.001),
    ],
)
def test_what_is_no_launch_costs_one_and_its_bytes(op: PlanOp, bytes_ms: float) -> None:
    plan = LaunchPlan((), (LAUNCH, op, op), ())
    got = modelled_time_ms(plan, [LaunchReport("k", {}, 0.5)], "NVIDIA H200")
    assert got == pytest.approx(0.5 + 2 * (START_MS + bytes_ms))


def test_a_launch_without_a_time_gives_no_time() -> None:
    assert modelled_time_ms(PLAN, [LaunchReport("k", {}, None)], "NVIDIA H200") is None
    assert modelled_time_ms(PLAN, [], "NVIDIA H200") is None


def test_the_median_is_reported_and_the_interval_spans_the_replays() -> None:
    middle = 0.003 + START_MS
    result = modelled_result(TIMED, "NVIDIA H200", 4 * middle)
    assert result is not None
    assert result.kernel_ms == pytest.approx(middle)
    assert result.kernel_ms_ci95 == (
        pytest.approx(middle - 0.001),
        pytest.approx(middle + 0.001),
    )
    assert result.speedup_vs_naive == pytest.approx(4.0)
    assert result.flops == 25
    assert result.achieved_gbps == pytest.approx(4.8 / middle)
    assert result.roofline_fraction == pytest.approx(0.001 / middle)
    assert result.modelled
    assert result.speedup is None


def test_sums_are_added_and_ratios_weighted_by_time() -> None:
    reports = [
        LaunchReport("a", {"x.sum": 1.0, "y.pct": 10.0}, 1.0),
        LaunchReport("b", {"x.sum": 2.0, "y.pct": 40.0}, 3.0),
    ]
    assert summed_counters(reports) == {"x.sum": 3.0, "y.pct": pytest.approx(32.5)}


def _task(naive: str | None) -> Task:
    return Task(
        name="t",
        tier=0,
        family="f",
        ops=("x",),
        description="",
        reference="",
        cases=(TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),)),),
        naive_kernel=naive,
    )


def noting(measured: list[str], wait_s: float = 0.0) -> Callable[[Task], float]:
    """A measurement that says of which task it was."""

    def measure(task: Task) -> float:
        measured.append(task.name)
        time.sleep(wait_s)
        return 0.5

    return measure


def test_a_baseline_is_measured_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    measured: list[str] = []
    measure = noting(measured)
    for _ in range(2):  # two processes
        baselines = BaselineTimes(measure, "salt")
        assert [baselines.time_ms(_task("code")) for _ in range(2)] == [0.5, 0.5]
        assert baselines.known(_task("code"))
    assert measured == ["t"]
    assert BaselineTimes(measure, "other salt").time_ms(_task("code")) == 0.5
    assert len(measured) == 2


def test_a_time_that_a_verdict_measured_is_taken_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    judge, task = Judge.__new__(Judge), _task("naive code")
    measured = iter([0.25, 0.75])
    device = SimpleNamespace(time_ms=lambda timed: next(measured))
    judge.backend, judge.config = "cuda", JudgeConfig()
    judge._naive_kernels = NaiveKernels(None)
    judge._baselines = BaselineTimes(lambda task: pytest.fail("measured again"), "salt")
    monkeypatch.setattr(judge, "_devices", lambda: device)

    def naive_ms(code: str) -> float | None:
        draft = VerdictDraft(task, Candidate(code=code), "cuda", Receipt())
        return judge._naive_ms(cast(TimedCase, None), draft)

    assert naive_ms("naive code") == 0.25
    assert naive_ms("other code") == 0.25
    assert naive_ms("naive code") == 0.75, "its own verdict says what was measured"
    assert naive_ms("other code") == 0.25, "what others are put beside stays"


def test_a_naive_kernel_that_had_no_time_may_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    refused = BaselineTimes(lambda task: None, "salt")
    assert refused.time_ms(_task("code")) is None
    assert refused.known(_task("code"))
    refused.keep(_task("code"), 0.5)
    for baselines in (refused, BaselineTimes(lambda task: pytest.fail("again"), "salt")):
        assert baselines.time_ms(_task("code")) == 0.5


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (JudgeConfig(), [1.0, 1.0]),
        (JudgeConfig(time_naive=False), [None, 0.25]),
        (JudgeConfig(time_naive=False, baselines="none"), [1.0, 1.0]),
    ],
    ids=["usual", "not wanted, until its own verdict measured it", "nothing else is timed"],
)
def test_a_naive_kernel_is_timed_on_a_gpu_where_it_is_wanted(
    config: JudgeConfig, found: list[float | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    judge, task = Judge.__new__(Judge), _task("naive code")
    judge.backend, judge.config = "cuda", config
    judge._naive_kernels = NaiveKernels(None)
    judge._baselines = BaselineTimes(lambda task: 1.0, "salt")
    draft = VerdictDraft(task, Candidate(code="other code"), "cuda", Receipt())
    times = [judge._naive_ms(cast(TimedCase, None), draft)]
    judge._baselines.keep(task, 0.25)
    times.append(judge._naive_ms(cast(TimedCase, None), draft))
    assert times == found


def test_of_judges_that_need_a_baseline_at_once_one_measures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    measured: list[str] = []
    measure = noting(measured, wait_s=0.2)
    with ThreadPoolExecutor(4) as judges:
        several = [BaselineTimes(measure, "salt") for _ in range(4)]
        asked = [judges.submit(baselines.time_ms, _task("code")) for baselines in several]
        assert [time_ms.result() for time_ms in asked] == [0.5] * 4
    assert measured == ["t"]


def test_a_baseline_that_one_judge_failed_at_is_measured_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))

    def full(task: Task) -> float:
        raise DeviceFullError("no memory")

    with pytest.raises(DeviceFullError):
        BaselineTimes(full, "salt").time_ms(_task("code"))
    assert BaselineTimes(lambda task: 0.5, "salt").time_ms(_task("code")) == 0.5
