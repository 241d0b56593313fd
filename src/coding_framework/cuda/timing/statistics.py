"""The statistics of the timing protocol: when a clock has settled, and when a median is known.

Pure: numbers in, numbers out. The same for candidates and for baselines, so that a speedup divides
two figures that were found in one way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

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
    enough_s: float = 0.05
    """Fewer calls are enough where they take so long together, from 1.7 ms a call on; never fewer
    than six. Thirty calls that took 2 to 7 ms had an interval of 0.2% (36 kernels on one H200)."""
    batch_s: float = 0.07
    """A batch of samples ends with the call that makes it so long."""
    max_samples: int = 1000
    max_s: float = 1.0
    """Wall time of the measurement, preparations between calls included."""
    target_width: float = 0.01
    """Width of the median's 95% interval, over the median, at which it is known well enough."""
    warm_up_batch: int = 8
    warm_up_batch_s: float = 0.02
    """Likewise of a batch of the warm-up."""
    warm_up_drift: float = 0.01
    """Two batches whose medians differ by less are stable."""
    warm_up_calls: int = 160
    warm_up_s: float = 0.3
    event_ms: float = 0.0
    """What events count of a kernel beyond its own time and beyond an empty plan, on the GPU that
    measures: taken off each sample."""

    def fewest_calls(self, call_ms: float) -> int:
        """How often something that takes so long is called at least."""
        if call_ms <= 0:
            return self.min_samples
        return max(_FEWEST, min(self.min_samples, math.ceil(1e3 * self.enough_s / call_ms)))

    def is_enough(self, samples: Sequence[float]) -> bool:
        """Whether so many calls, with their times in ms, may be the last ones."""
        long = sum(samples) >= 1e3 * self.enough_s
        return len(samples) >= (_FEWEST if long else self.min_samples)


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
    return Timing(middle, low, high, len(samples), narrow and protocol.is_enough(samples))


def is_stable(before: Sequence[float], now: Sequence[float], protocol: TimingProtocol) -> bool:
    """Whether two warm-up batches agree."""
    if not before:
        return False
    then, last = median(before), median(now)
    return last > 0 and abs(last - then) / last <= protocol.warm_up_drift


def warm_up(
    call: Callable[[], float], protocol: TimingProtocol, clock: Callable[[], float]
) -> list[float]:
    """Call until times are stable or a cap is reached; the times, which count for nothing.

    call: does one call and gives its time in ms. clock: wall time in seconds.
    """
    started = clock()
    samples: list[float] = []
    now: list[float] = []
    while len(samples) < protocol.warm_up_calls and clock() - started < protocol.warm_up_s:
        before, now = now, _batch(call, protocol.warm_up_batch, protocol.warm_up_batch_s)
        samples += now
        if is_stable(before, now, protocol):
            break
    return samples


def _batch(call: Callable[[], float], size: int, seconds: float) -> list[float]:
    """The times of so many calls, or of fewer that take so long together."""
    samples: list[float] = []
    while len(samples) < size and sum(samples) < 1e3 * seconds:
        samples.append(call())
    return samples


def sample_until_known(
    call: Callable[[], float], protocol: TimingProtocol, clock: Callable[[], float],
    calls: int | None = None,
) -> list[float]:  # fmt: skip
    """Times in ms until the interval of their median is narrow enough, or a cap is reached; or
    just so many, for something long that could become short as soon as nobody looks.

    Looking after each batch makes the interval's true coverage a little less than 95% (a simulation
    in the tests gives 90% and more); the batch and the smallest count keep the looks few.
    """
    started = clock()
    samples: list[float] = []
    while True:
        left = protocol.batch if calls is None else min(protocol.batch, calls - len(samples))
        samples += _batch(call, left, protocol.batch_s)
        if calls is not None:
            if len(samples) >= calls:
                return samples
        elif _is_over(samples, protocol, clock() - started):
            return samples


def _is_over(samples: Sequence[float], protocol: TimingProtocol, elapsed_s: float) -> bool:
    if len(samples) < _FEWEST:
        return False
    if protocol.is_enough(samples) and summary(samples, protocol).settled:
        return True
    return len(samples) >= protocol.max_samples or elapsed_s >= protocol.max_s
