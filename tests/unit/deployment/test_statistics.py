"""A rollout's statistics equal their oracles and keep their promises on simulated rollouts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from coding_framework.deployment.statistics import (
    Effect,
    half_width,
    log_odds_e,
    log_sample_ratio_e,
    spending_bounds,
    units_to_plan,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("looks", "alpha", "published"),
    [
        (5, 0.05, (4.877, 3.357, 2.680, 2.290, 2.031)),
        (1, 0.05, (1.960,)),
        (1, 0.01, (2.576,)),
        (2, 0.05, (2.963, 1.969)),
    ],
)
def test_bounds_are_those_that_are_published(
    looks: int, alpha: float, published: tuple[float, ...]
) -> None:
    assert spending_bounds(looks, alpha) == pytest.approx(published, abs=6e-4)


@pytest.mark.parametrize("arguments", [(0, 0.05), (5, 0.0), (5, 1.0)])
def test_bounds_of_nothing_are_refused(arguments: tuple[int, float]) -> None:
    with pytest.raises(ValueError, match="looks must be at least 1"):
        spending_bounds(*arguments)


def test_five_looks_cross_as_often_as_they_may() -> None:
    generator = np.random.default_rng(0)
    walk = generator.standard_normal((200_000, 5)).cumsum(1) / np.sqrt(np.arange(1, 6))
    crossed = (walk > np.array(spending_bounds(5))).any(1).mean()
    assert crossed == pytest.approx(0.025, abs=4 * math.sqrt(0.025 / 200_000))


@pytest.mark.parametrize(
    ("of_candidate", "bad"), [(0, 0), (1, 1), (0, 9), (9, 9), (30, 40), (500, 900)]
)
@pytest.mark.parametrize("risk", [1.0, 1.25])
def test_the_odds_e_value_is_the_integral_over_the_alternative(
    of_candidate: int, bad: int, risk: float
) -> None:
    """A uniform prior over the shares above the largest that the hypothesis allows."""
    allowed = risk * 0.5 / (risk * 0.5 + 0.5)
    others = bad - of_candidate

    def ratio(share: float) -> float:
        return (share / allowed) ** of_candidate * ((1 - share) / (1 - allowed)) ** others

    peak = min(max(of_candidate / max(bad, 1), allowed), 1.0)
    total = integrate.quad(ratio, allowed, 1, points=[peak], epsabs=0, epsrel=1e-11, limit=200)[0]
    expected = math.log(total / (1 - allowed))
    assert log_odds_e(of_candidate, bad, 0.5, risk) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("of_candidate", [0, 1, 5_000_000, 10_000_000])
def test_the_odds_e_value_is_finite_for_ten_million_events(of_candidate: int) -> None:
    assert math.isfinite(log_odds_e(of_candidate, 10_000_000, 0.5, 1.25))


def test_the_odds_e_value_never_falls_below_its_floor() -> None:
    assert log_odds_e(0, 10_000_000, 0.5, 1.0) == -700.0


@pytest.mark.parametrize("split", [0.5, 0.1])
@pytest.mark.parametrize(("of_candidate", "units"), [(0, 0), (3, 4), (480, 1000), (90, 4000)])
def test_the_sample_ratios_e_value_is_that_of_scipys_beta_binomial(
    of_candidate: int, units: int, split: float
) -> None:
    null = stats.binom.logpmf(of_candidate, units, split)
    parts = [
        stats.betabinom.logpmf(of_candidate, units, a, b)
        for a, b in ((1e4 * split, 1e4 * (1 - split)), (1, 1))
    ]
    expected = np.logaddexp(*parts) - math.log(2) - null
    assert log_sample_ratio_e(of_candidate, units, split) == pytest.approx(expected, abs=1e-9)


def test_a_half_width_is_that_of_growthbook() -> None:
    """200 random tables; `scripts/gbstats_oracle.py` made them with gbstats 0.8.0."""
    rows = json.loads((Path(__file__).parent / "golden/gbstats.json").read_text())
    assert len(rows) == 200
    for variance, units, tuned_to, alpha, wanted in rows:
        found = half_width(units, math.sqrt(variance), alpha, tuned_to)
        assert found == pytest.approx(wanted, rel=1e-9)


def test_the_interval_is_narrowest_where_it_is_tuned() -> None:
    """Its width over that of a fixed-size interval is least near `tuned_to`."""
    units = np.array([100.0, 1000, 5000, 30_000, 300_000])
    inflation = half_width(units, 1.0, 0.05, 5000) * np.sqrt(units) / 1.96
    assert inflation.argmin() == 2
    assert inflation[2] < 1.6


def test_an_effect_in_parts_of_many_rollouts_is_that_of_each_alone() -> None:
    generator = np.random.default_rng(1)
    arms = generator.integers(0, 2, (50, 3)).astype(float)
    seen = generator.random((50, 3))
    together = Effect()
    alone = [Effect() for _ in range(3)]
    for arm, observed in zip(arms, seen, strict=True):
        together = together.after(arm, observed, 0.5)
        alone = [
            effect.after(float(a), float(o), 0.5)
            for effect, a, o in zip(alone, arm, observed, strict=True)
        ]
    for name in ("mean", "expected", "squares"):
        assert list(getattr(together, name)) == [getattr(effect, name) for effect in alone]
    low, high = together.interval(0.05)
    assert (low < together.mean).all()
    assert (together.mean < high).all()


def test_nothing_that_varies_has_no_z() -> None:
    effect = Effect().after(1.0, 0.5, 0.5).after(0.0, 0.5, 0.5)
    assert effect.z == 0.0


@pytest.mark.parametrize("true", [0.0, 0.05])
def test_an_effect_is_found_while_the_base_rate_drifts(true: float) -> None:
    generator = np.random.default_rng(2)
    rollouts, units = 300, 4000
    effect = Effect()
    outside = np.zeros(rollouts, bool)
    for i in range(units):
        arm = (generator.random(rollouts) < 0.5).astype(float)
        rate = 0.3 + 0.2 * i / units + true * arm
        effect = effect.after(arm, (generator.random(rollouts) < rate).astype(float), 0.5)
        if i >= 200 and i % 20 == 0:
            low, high = effect.interval(0.05, units / 4)
            outside |= (low > true) | (high < true)
    assert effect.mean.mean() == pytest.approx(true, abs=0.004)
    assert outside.mean() <= 0.05


def test_a_failing_candidate_is_stopped_after_few_units() -> None:
    """1% of errors becomes 50%: nineteen rollouts of twenty stop within 45 units of the candidate.
    The goal of the alarm is .05 shared by four guardrails."""
    generator = np.random.default_rng(3)
    stopped = []
    for _ in range(200):
        bad = of_candidate = served = 0
        while log_odds_e(of_candidate, bad, 0.5, 1.25) < math.log(4 / 0.05):
            candidate = generator.random() < 0.5
            served += candidate
            if generator.random() < (0.5 if candidate else 0.01):
                bad += 1
                of_candidate += candidate
        stopped.append(served)
    assert np.quantile(stopped, 0.95) <= 45


def test_units_are_planned_for_the_power_that_is_asked_for() -> None:
    """At a rate of .3, three points, power .8: the fixed-size test's number and three percent."""
    deviation = math.sqrt(0.3 * 0.7)
    planned = units_to_plan((deviation, deviation), 0.03, 0.8)
    fixed = 2 * (1.959964 + 0.841621) ** 2 * 2 * 0.21 / 0.03**2
    assert planned == pytest.approx(1.03 * fixed, abs=2)
