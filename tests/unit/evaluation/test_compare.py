"""Comparisons: a difference is called one when there is one, and seldom when there is none."""

from __future__ import annotations

import numpy as np
import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import compare_runs, flip_test, holm
from coding_framework.evaluation.samples import SampleRecord


def drawn(rng: np.random.Generator, chances: np.ndarray, samples: int) -> list[SampleRecord]:
    return [
        SampleRecord(task=f"t{t:03}", sample=i, correct=bool(rng.random() < p))
        for t, p in enumerate(chances)
        for i in range(samples)
    ]


def timed(task: str, speedup: float, width: float = 0.0) -> SampleRecord:
    ms = 1 / speedup
    return SampleRecord(
        task=task, correct=True, speedup=speedup, basis="measured", device="H200",
        kernel_ms=ms, kernel_ms_low=ms * (1 - width), kernel_ms_high=ms * (1 + width),
    )  # fmt: skip


@pytest.mark.parametrize("samples", [1, 4])
def test_equal_models_are_seldom_called_different(samples: int) -> None:
    rng, called = np.random.default_rng(4), 0
    for _ in range(40):
        chances = rng.beta(0.5, 0.5, 100)
        found = compare_runs(drawn(rng, chances, samples), drawn(rng, chances, samples))
        called += found.differences[0].word != "no clear difference"
    assert called <= 6  # 5% of 40 is 2; more than 6 has a chance of 0.3%


def test_a_real_difference_is_found_and_named() -> None:
    rng = np.random.default_rng(6)
    worse, better = drawn(rng, np.full(100, 0.4), 4), drawn(rng, np.full(100, 0.65), 4)
    assert compare_runs(worse, better).differences[0].word == "better"
    assert compare_runs(better, worse).sentence.startswith("B is worse than A in pass@1: -")


def test_few_tasks_are_never_enough_for_a_word() -> None:
    none = [SampleRecord(task=f"t{i}", correct=False) for i in range(7)]
    found = compare_runs(none, [s.model_copy(update={"correct": True}) for s in none])
    assert found.differences[0].word == "no clear difference"


def test_overlapping_times_are_a_tie() -> None:
    a = [timed(f"t{i}", 1.00, width=0.05) for i in range(30)]
    b = [timed(f"t{i}", 1.02, width=0.05) for i in range(30)]
    speed = compare_runs(a, b).speed
    assert speed is not None
    assert speed.estimate == 0
    assert speed.word == "no clear difference"


def test_modelled_and_measured_speeds_are_not_compared() -> None:
    a = [timed(f"t{i}", 1.0) for i in range(30)]
    b = [s.model_copy(update={"basis": "modelled", "baseline": "naive"}) for s in a]
    found = compare_runs(a, b)
    assert found.speed is None
    assert [d.metric for d in found.differences] == ["pass@1"]


def test_runs_of_other_suites_or_protocols_are_refused() -> None:
    one = [SampleRecord(task=f"a{i}", correct=True, protocol="9") for i in range(10)]
    other = [SampleRecord(task=f"b{i}", correct=True, protocol="9") for i in range(10)]
    with pytest.raises(UsageError, match="share 0 of 10 tasks"):
        compare_runs(one, other)
    with pytest.raises(UsageError, match="protocols 8 and 9"):
        compare_runs(one, [s.model_copy(update={"protocol": "8"}) for s in one])


def test_tasks_won_and_lost_are_named() -> None:
    a = [SampleRecord(task="kept", correct=True), SampleRecord(task="gone", correct=True)]
    b = [SampleRecord(task="kept", correct=True), SampleRecord(task="gone", correct=False)]
    assert compare_runs(a, b).lost == ("gone",)
    assert compare_runs(b, a).won == ("gone",)


def test_holm_corrects_each_p_value_for_those_that_are_smaller() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_no_change_at_all_is_no_evidence() -> None:
    assert flip_test(np.zeros(50)) == 1.0
