"""When a rollout wins, harms or breaks something: pure rules over its statistics.

The manager asks them of one rollout, simulations of thousands at once, as NumPy arrays; both are
told the same.
"""

from __future__ import annotations

import math

import numpy as np

from coding_framework.deployment.ab_testing import ABTestConfig, Metric
from coding_framework.deployment.statistics import (
    Effect,
    Numbers,
    log_odds_e,
    log_sample_ratio_e,
    spending_bounds,
)

LOOKS = 5
"""Looks at which a machine may promote, at equal numbers of closed units."""
ENOUGH_UNITS = 100
"""Closed units of each arm below which the confidence sequence is neither shown nor used."""
BROKEN_RATIO_P = 0.001
"""Below this p-value of the sample ratio a rollout pauses until a person acts."""


def look_at(units: int, horizon: int) -> int | None:
    """Which of the looks, from 1, falls on exactly so many closed units; None: none."""
    for look in range(1, LOOKS + 1):
        if units == look * horizon // LOOKS:
            return look
    return None


def wins(effect: Effect, look: int, alpha: float) -> Numbers:
    """Whether the goal is met at this look. effect: of the units up to it, in their order."""
    return effect.z > spending_bounds(LOOKS, alpha)[look - 1]


def harms(effect: Effect, metric: Metric, alpha: float, horizon: int) -> Numbers:
    """Whether the candidate is worse than its margin allows: the whole interval lies below. Valid
    at every look."""
    _, high = effect.interval(alpha, horizon / 4)
    return high < -metric.margin / (metric.high - metric.low)


def breaks(of_candidate: Numbers, bad: Numbers, metric: Metric, config: ABTestConfig) -> Numbers:
    """Whether a bad event is too likely in the candidate. Valid after every event."""
    log_e = log_odds_e(of_candidate, bad, config.split, metric.relative_risk)
    return log_e >= -math.log(config.alpha_of(metric))


def ratio_is_broken(of_candidate: Numbers, units: Numbers, split: float) -> Numbers:
    """Whether the arms' numbers of units contradict the split. Valid at every look."""
    return np.asarray(-log_sample_ratio_e(of_candidate, units, split)) < math.log(BROKEN_RATIO_P)
