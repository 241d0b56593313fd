"""The statistics of a rollout: is the candidate better, is it worse, does it break something?

Every function is pure. Counts, sums and means may be numbers or NumPy arrays of the same shape (one
element a simulated rollout): both go through the same arithmetic, so that a simulation's decisions
are those of the real manager.

What holds, and under which assumption: the arm of each unit is drawn independently of all before
it, with a constant probability. Nothing else is assumed of the base rate, which may drift.

- `Effect`, `half_width`: an asymptotic confidence sequence (Waudby-Smith et al., "Time-uniform
  central limit theory and asymptotic confidence sequences", 2021): valid whenever somebody looks,
  for many units (the rollout shows it from 100 units an arm on).
- `log_odds_e`: an e-process for bad events. Exact at any number of units.
- `log_sample_ratio_e`: an e-value of the numbers of units in the two arms.
- `spending_bounds`: group-sequential bounds (Lan and DeMets 1983, O'Brien-Fleming type), for the
  few looks at which a machine may promote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

Numbers = Any
"""A float, or a float64 array of any shape."""

TUNED_TO_UNITS = 5000
"""Units at which a confidence sequence is narrowest, where nothing else is said."""
_RECENT = 200
"""The expected value of the next observation follows about so many units."""
_LEAST_LOG_E = -700.0
_SPIKE = 1e4
"""Pseudo-counts of the sharp half of the prior over sample ratios."""
_NODES = 400
_FAR = 10.0
"""Standard deviations beyond which a random walk has no mass worth counting."""
_SAFETY = 1.03
"""Planned units over those of a fixed-size test: what five looks cost (Jennison and Turnbull)."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The candidate's mean minus the incumbent's, from units in the order of their enrolment.

    Of each unit only one arm is seen; weighted by one over that arm's probability its observation
    has the effect as its expected value. What is expected of any unit is taken off first, from
    units before it alone, which keeps the variance small and follows a drift.
    """

    units: Numbers = 0
    expected: Numbers = 0.5
    mean: Numbers = 0.0
    squares: Numbers = 0.0
    """Sum of the squared differences from the mean."""

    def after(self, candidate: Numbers, observed: Numbers, split: float) -> Effect:
        """With one more unit. candidate: 1 where it is the candidate's, else 0; observed: in
        [0, 1]; split: probability of the candidate's arm."""
        weight = candidate / split - (1 - candidate) / (1 - split)
        rate = np.maximum(1 / _RECENT, 1 / (self.units + 2))
        expected = self.expected + rate * (observed - self.expected)
        return self._grown(weight * (observed - self.expected), expected)

    def after_pair(self, difference: Numbers) -> Effect:
        """With one more unit that both versions answered. difference: candidate less incumbent."""
        return self._grown(difference, self.expected)

    def _grown(self, increment: Numbers, expected: Numbers) -> Effect:
        units = self.units + 1
        off = increment - self.mean
        mean = self.mean + off / units
        squares = self.squares + off * (increment - mean)
        return Effect(units=units, expected=expected, mean=mean, squares=squares)

    @property
    def deviation(self) -> Numbers:
        """Standard deviation of one unit's increment; 0 below two units."""
        return np.sqrt(self.squares / np.maximum(self.units - 1, 1))

    @property
    def z(self) -> Numbers:
        """The mean in its own standard errors, for `spending_bounds`; 0 where nothing varies."""
        error = self.deviation / np.sqrt(np.maximum(self.units, 1))
        return np.where(error > 0, self.mean / np.where(error > 0, error, 1.0), 0.0)

    def interval(self, alpha: float, tuned_to: float = TUNED_TO_UNITS) -> tuple[Numbers, Numbers]:
        """Where the effect lies, with probability 1 - alpha at all looks together. Two units at
        least."""
        half = half_width(self.units, self.deviation, alpha, tuned_to)
        return self.mean - half, self.mean + half


def half_width(
    units: Numbers, deviation: Numbers, alpha: float, tuned_to: float = TUNED_TO_UNITS
) -> Numbers:
    """Half of a confidence sequence's width after so many units; narrowest near `tuned_to`."""
    twice = -2 * math.log(alpha)
    rho2 = (twice + math.log(twice + 1)) / tuned_to
    grown = units * rho2 + 1
    return deviation * np.sqrt(2 * grown / (units**2 * rho2) * np.log(np.sqrt(grown) / alpha))


def log_odds_e(of_candidate: Numbers, bad: Numbers, split: float, relative_risk: float) -> Numbers:
    """Natural logarithm of the e-value against "a bad event is at most `relative_risk` times as
    likely in the candidate's arm".

    of_candidate: of all units that had a bad event (`bad`), those of the candidate's arm. Each unit
    is counted once, when it happens. An alarm at E >= 1 / alpha is false with probability alpha at
    most, over all looks and whatever the rates do. Never below -700.
    """
    share = relative_risk * split / (relative_risk * split + 1 - split)
    others = bad - of_candidate
    a, b = of_candidate + 1.0, others + 1.0
    with np.errstate(divide="ignore"):
        tail = np.log(special.betaincc(a, b, share))
    log_e = (
        special.betaln(a, b)
        + tail
        - math.log1p(-share)
        - of_candidate * math.log(share)
        - others * math.log1p(-share)
    )
    return np.maximum(log_e, _LEAST_LOG_E)


def log_sample_ratio_e(of_candidate: Numbers, units: Numbers, split: float) -> Numbers:
    """Natural logarithm of the e-value against "each unit comes to the candidate's arm with
    probability `split`". Half of the prior stands closely about the split, half is flat."""
    others = units - of_candidate
    null = of_candidate * math.log(split) + others * math.log1p(-split)
    a, b = _SPIKE * split, _SPIKE * (1 - split)
    spike = special.betaln(of_candidate + a, others + b) - special.betaln(a, b)
    slab = special.betaln(of_candidate + 1.0, others + 1.0)
    return np.logaddexp(spike, slab) - math.log(2) - null


@lru_cache(maxsize=32)
def spending_bounds(looks: int, alpha: float = 0.05) -> tuple[float, ...]:
    """What `z` must exceed at each of `looks` equally spaced looks, for a two-sided test of size
    alpha: a look spends `2 - 2 Phi(z / sqrt(t))` of alpha / 2, t the share of units seen.

    Raises ValueError for looks below 1 or alpha outside (0, 1).
    """
    if looks < 1 or not 0 < alpha < 1:
        raise ValueError(f"looks must be at least 1 and alpha in (0, 1), not {looks} and {alpha}")
    start = -special.ndtri(alpha / 4)
    times = np.arange(1, looks + 1) / looks
    spent = 2 * special.ndtr(-start / np.sqrt(times))
    bounds: list[float] = []
    places, mass, time = np.zeros(1), np.ones(1), 0.0
    for now, spends in zip(times, np.diff(spent, prepend=0.0), strict=True):
        step = math.sqrt(now - time)
        edge = _crossed_with(spends, places, mass, step)
        bounds.append(edge / math.sqrt(now))
        reached, weights = _quadrature(-_FAR * math.sqrt(now), edge)
        density = _normal_density((reached[:, None] - places[None, :]) / step) / step @ mass
        places, mass, time = reached, weights * density, float(now)
    return tuple(bounds)


def _crossed_with(probability: float, places: Any, mass: Any, step: float) -> float:
    """The edge that a random walk with this distribution crosses in its next step with that
    probability."""

    from scipy.optimize import brentq  # half a second, which a server's start does not have

    def excess(edge: float) -> float:
        return float(special.ndtr((places - edge) / step) @ mass) - probability

    return float(brentq(excess, -_FAR, _FAR, xtol=1e-12))


def _normal_density(z: Any) -> Any:
    return np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def _quadrature(low: float, high: float) -> tuple[Any, Any]:
    """Places and weights of an integral from low to high."""
    nodes, weights = _legendre()
    return low + (nodes + 1) / 2 * (high - low), weights * (high - low) / 2


@lru_cache(maxsize=1)
def _legendre() -> tuple[Any, Any]:
    """Nodes and weights on [-1, 1]: an eigenvalue problem of a third of a second."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def units_to_plan(
    deviations: Sequence[float], smallest_effect: float, power: float, alpha: float = 0.05
) -> int:
    """Units of both arms together, at equal split, that find `smallest_effect` with `power` at
    five looks. deviations: a unit's standard deviation in each of the two arms."""
    reach = special.ndtri(power) - special.ndtri(alpha / 2)
    an_arm = float(reach**2 * sum(d**2 for d in deviations) / smallest_effect**2)
    return 2 * math.ceil(_SAFETY * an_arm)
