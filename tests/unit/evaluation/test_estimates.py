"""Estimates: exact where they can be enumerated, covering where they are random."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from coding_framework.evaluation.estimates import (
    fast_p_curve,
    geometric_mean,
    pass_at,
    pass_at_k,
    rate,
)
from coding_framework.evaluation.samples import SampleRecord


def samples_of(flags: list[list[bool]], speedup: float | None = None) -> list[SampleRecord]:
    """A sample for each flag; one list a task."""
    return [
        SampleRecord(
            task=f"task{t:03}",
            sample=i,
            correct=flag,
            status="correct" if flag else "wrong_output",
            speedup=speedup if flag else None,
        )
        for t, row in enumerate(flags)
        for i, flag in enumerate(row)
    ]  # fmt: skip


@pytest.mark.parametrize("n", range(1, 9))
def test_pass_at_k_is_the_share_of_all_subsets_with_a_correct_sample(n: int) -> None:
    for c in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations([i < c for i in range(n)], k))
            assert pass_at_k(n, c, k) == sum(map(any, subsets)) / len(subsets)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="are needed"):
        pass_at_k(n, c, k)


def test_a_masked_sample_counts_neither_way() -> None:
    judged = samples_of([[True], [False]])
    masked = [SampleRecord(task="task000", sample=9, masked="the judge's disk was full")]
    assert rate(judged + masked) == rate(judged)


def test_a_run_of_masked_samples_has_no_rate_and_not_the_rate_zero() -> None:
    found = rate([SampleRecord(task="a", masked="fault")])
    assert found.value is None
    assert found.why


def test_tasks_weigh_the_same_however_many_samples_they_have() -> None:
    assert rate(samples_of([[True] * 9, [False]])).value == pytest.approx(0.5)


def test_pass_at_k_is_not_told_where_tasks_have_too_few_samples() -> None:
    found = pass_at(samples_of([[True] * 4, [True]]), k=4)
    assert found.value is None
    assert found.why == "1 of 2 tasks have fewer than 4 judged samples"


def test_a_speedup_equal_to_the_threshold_is_not_above_it() -> None:
    equal = samples_of([[True]], speedup=1.5)
    assert rate(equal, above=1.5).value == 0
    assert rate(equal, above=1.4999).value == 1


def test_no_success_has_an_interval_that_reaches_above_zero() -> None:
    low, high = rate(samples_of([[False] * 8] * 50)).ci95 or (1, 1)
    assert low == 0
    assert 0.02 < high < 0.15


def test_an_estimate_is_the_same_in_a_rerun() -> None:
    rng = np.random.default_rng(3)
    made = samples_of([[bool(rng.random() < 0.4) for _ in range(4)] for _ in range(60)])
    assert rate(made) == rate(made)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95, None])
def test_intervals_hold_the_truth_as_often_as_they_say(p: float | None) -> None:
    """100 tasks of 8 samples, 60 suites; p None: it varies between tasks, with mean 1/2. 52 of 60
    have a chance of 2% at a coverage of 95%."""
    rng, held = np.random.default_rng(11), 0
    for _ in range(60):
        chances = rng.beta(0.5, 0.5, 100) if p is None else np.full(100, p)
        hits = rng.random((100, 8)) < chances[:, None]
        low, high = rate(samples_of(hits.tolist())).ci95 or (1, 0)
        held += low <= (0.5 if p is None else p) <= high
    assert held >= 52


def test_a_curve_falls_and_lies_in_its_band() -> None:
    rng = np.random.default_rng(2)
    made = [
        SampleRecord(task=f"t{i}", correct=True, status="correct", speedup=float(s))
        for i, s in enumerate(rng.lognormal(0.2, 0.5, 80))
    ]
    curve = fast_p_curve(made, asked=(1.0, 2.0))
    values = [point.value for point in curve]
    assert values == sorted(values, reverse=True)
    assert all(point.low <= point.value <= point.high for point in curve)
    at_one = next(point.value for point in curve if point.p == 1.0)
    assert at_one == rate(made, above=1.0).value


def test_a_geometric_mean_is_taken_in_logarithms() -> None:
    assert geometric_mean([0.5, 2.0, 1.0]).value == pytest.approx(1.0)
    assert geometric_mean([]).value is None
