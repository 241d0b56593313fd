"""The statistics of the timing protocol: when a clock has settled, and when a median is known.

Pure: numbers in, numbers out. The same for candidates and for baselines, so that a speedup divides
two figures that were found in one way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

_Z95 = 1.959964
"""Quantile of the normal distribution for a two-sided 95% interval."""
_FEWEST = 6
"""Samples below which no pair of order statistics holds the median with 95%."""


@dataclass(frozen=True, slots=True)
class TimingProtocol:
    """How often something is timed. All of it is part of what a kept baseline depends on."""

    batch: int = 10
    """Calls between two looks at the interval."""
    min_samples: int = 30
    max_samples: int = 1000
    max_s: float = 1.0
    """Wall time of the measurement, preparations between calls included."""
    target_width: float = 0.01
    """Width of the median's 95% interval, over the median, at which it is known well enough."""
    warm_up_batch: int = 8
    warm_up_drift: float = 0.01
    """Two batches whose medians differ by less are stable."""
    warm_up_calls: int = 160
    warm_up_s: float = 0.3

    def as_data(self) -> dict[str, Any]:
        """For the device process, and for the key of what is kept."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Timing:
    """A median with its interval."""

    median_ms: float
    low_ms: float
    """Ends of the 95% interval of the median."""
    high_ms: float
    samples: int
    settled: bool
    """Whether the interval became as narrow as asked before a cap was reached."""

    @property
    def width(self) -> float:
        """Of the interval, over the median."""
        return (self.high_ms - self.low_ms) / self.median_ms if self.median_ms > 0 else math.inf


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the median by order statistics: no assumption on how times are spread.

    Ranks by the normal approximation of the binomial, rounded outwards (Conover, "Practical
    Nonparametric Statistics", 3.2). With fewer than 6 samples: the whole range, which holds less.
    """
    ordered = sorted(samples)
    n = len(ordered)
    if n == 0:
        raise ValueError("no samples")
    if n < _FEWEST:
        return ordered[0], ordered[-1]
    half = _Z95 * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - half) - 1)
    high = min(n - 1, math.ceil(n / 2 + half))
    return ordered[low], ordered[high]


def summary(samples: Sequence[float], protocol: TimingProtocol) -> Timing:
    """The median of samples in ms, with its interval."""
    low, high = median_interval(samples)
    middle = median(samples)
    narrow = middle > 0 and (high - low) / middle <= protocol.target_width
    return Timing(middle, low, high, len(samples), narrow and len(samples) >= protocol.min_samples)


def is_stable(samples: Sequence[float], protocol: TimingProtocol) -> bool:
    """Whether the last two warm-up batches agree."""
    size = protocol.warm_up_batch
    if len(samples) < 2 * size:
        return False
    before, now = median(samples[-2 * size : -size]), median(samples[-size:])
    return now > 0 and abs(now - before) / now <= protocol.warm_up_drift


def warm_up(
    call: Callable[[], float], protocol: TimingProtocol, clock: Callable[[], float]
) -> list[float]:
    """Call until times are stable or a cap is reached; the times, which count for nothing.

    call: does one call and gives its time in ms. clock: wall time in seconds.
    """
    started = clock()
    samples: list[float] = []
    while len(samples) < protocol.warm_up_calls and clock() - started < protocol.warm_up_s:
        samples += [call() for _ in range(protocol.warm_up_batch)]
        if is_stable(samples, protocol):
            break
    return samples


def sample_until_known(
    call: Callable[[], float], protocol: TimingProtocol, clock: Callable[[], float]
) -> list[float]:
    """Times in ms until the interval of their median is narrow enough, or a cap is reached.

    Looking after each batch makes the interval's true coverage a little less than 95% (a simulation
    in the tests gives 90% and more); the batch and the smallest count keep the looks few.
    """
    started = clock()
    samples: list[float] = []
    while True:
        samples += [call() for _ in range(protocol.batch)]
        if len(samples) >= protocol.min_samples and summary(samples, protocol).settled:
            return samples
        if len(samples) >= protocol.max_samples or clock() - started >= protocol.max_s:
            return samples
