"""Estimates with 95% intervals from the samples of one run: pass rate, pass@k, fast_p, curves.

The unit is a task: samples of one task are alike, so intervals resample tasks, never samples. With
one sample a task an interval is Wilson's; with several it is a percentile bootstrap over tasks of a
fixed seed, so that a rerun prints the same. Definitions: pass@k is the unbiased estimate of Chen et
al. 2021 (arXiv 2107.03374), fast_p is KernelBench's (arXiv 2502.10517; strictly greater than p).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from coding_framework.evaluation.metrics import wilson
from coding_framework.evaluation.samples import SampleRecord, count_by_task
from coding_framework.types import Record

RESAMPLES = 10_000
MIN_TASKS_FOR_A_RATE = 8
"""A smaller group shows counts and no rate."""
MAX_LEFT_OUT = 0.05
"""Share of tasks with too few samples above which pass@k is not given."""
CURVE_POINTS = 97


class Estimate(Record):
    """A number with its uncertainty. `value` is None, with `why`, where it cannot be told."""

    value: float | None
    ci95: tuple[float, float] | None = None
    tasks: int = 0
    samples: int = 0
    method: str = ""
    left_out: int = 0
    """Tasks with too few samples for it."""
    why: str = ""


class Share(Record):
    """A count out of n; without n it has no rate, which is not a rate of 0."""

    count: int
    n: int
    rate: float | None
    ci95: tuple[float, float] | None
    """Wilson's."""


NOTHING = Share(count=0, n=0, rate=None, ci95=None)


class CurvePoint(Record):
    """fast_p at one p, with its pointwise 95% band."""

    p: float
    value: float
    low: float
    high: float


def pass_at_k(n: int, c: int, k: int) -> float:
    """The probability that k of n samples, drawn without replacement, hold one of the c correct
    ones. Raises ValueError unless 0 <= c <= n and 1 <= k <= n."""
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"n {n}, c {c}, k {k}: 0 <= c <= n and 1 <= k <= n are needed")
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def share(flags: Iterable[bool]) -> Share:
    """How many of the flags are set."""
    values = list(flags)
    count, n = sum(values), len(values)
    if not n:
        return NOTHING
    return Share(count=count, n=n, rate=count / n, ci95=wilson(count, n))


def clearly_above(better: Share, worse: Share) -> bool:
    """Whether the lower end of one interval lies above the upper end of the other."""
    ends = better.ci95, worse.ci95
    return ends[0] is not None and ends[1] is not None and ends[0][0] > ends[1][1]


def rate(samples: Sequence[SampleRecord], above: float | None = None) -> Estimate:
    """Mean over tasks of the share of judged samples that are correct; above: and faster than so
    many times the baseline (fast_p)."""
    counts = count_by_task(samples, above)
    if not counts.tasks:
        return Estimate(value=None, why="no sample was judged")
    return mean_over_tasks(counts.shares_t, counts.judged_t)


def pass_at(samples: Sequence[SampleRecord], k: int, above: float | None = None) -> Estimate:
    """pass@k; above: fast_p@k, where a hit is a correct sample that much faster."""
    counts = count_by_task(samples, above)
    enough = counts.judged_t >= k if counts.tasks else np.zeros(0, dtype=bool)
    left_out = len(counts.tasks) - int(enough.sum())
    if not counts.tasks or left_out > MAX_LEFT_OUT * len(counts.tasks):
        why = f"{left_out} of {len(counts.tasks)} tasks have fewer than {k} judged samples"
        return Estimate(value=None, left_out=left_out, why=why)
    pairs = zip(counts.judged_t[enough], counts.hits_t[enough], strict=True)
    values = np.array([pass_at_k(int(n), int(c), k) for n, c in pairs])
    found = mean_over_tasks(values, counts.judged_t[enough])
    return found.model_copy(update={"left_out": left_out})


def geometric_mean(values: Sequence[float]) -> Estimate:
    """Of speedups, in logarithms, each of another task."""
    if not values:
        return Estimate(value=None, why="no time is known")
    logs = np.log(np.asarray(values))
    ends = None
    if len(logs) > 1:  # one value says nothing of how far another may lie
        low, high = mean_interval(logs)
        ends = (math.exp(low), math.exp(high))
    mean = math.exp(float(logs.mean()))
    return Estimate(value=mean, ci95=ends, tasks=len(logs), samples=len(logs), method="bootstrap")


def fast_p_curve(
    samples: Sequence[SampleRecord], asked: Sequence[float] = ()
) -> tuple[CurvePoint, ...]:
    """fast_p over p, on 97 points from 0.1 to 10 and those asked for, with a pointwise band: one
    set of resampled tasks serves all points, so that the band does not jump."""
    grid = sorted({*np.geomspace(0.1, 10, CURVE_POINTS).round(6), *asked})
    shares_pt = np.array([count_by_task(samples, p).shares_t for p in grid])
    if not shares_pt.size:
        return ()
    tasks = shares_pt.shape[1]
    weights_rt = np.random.default_rng(0).multinomial(tasks, np.full(tasks, 1 / tasks), RESAMPLES)
    means_rp = weights_rt @ shares_pt.T / tasks
    low_p, high_p = np.percentile(means_rp, [2.5, 97.5], axis=0)
    rows = zip(grid, shares_pt.mean(axis=1), low_p, high_p, strict=True)
    return tuple(CurvePoint(p=p, value=v, low=lo, high=hi) for p, v, lo, hi in rows)


def mean_interval(values_t: np.ndarray, method: str = "percentile") -> tuple[float, float]:
    """95% interval of the mean over tasks, by bootstrap. BCa falls back to the percentile way where
    it is not finite; values that are all equal give an interval of no width."""
    if len(values_t) < 2 or np.ptp(values_t) == 0:
        return (float(values_t[0]), float(values_t[0]))
    from scipy.stats import bootstrap  # half a second, which a run's start does not have

    found = bootstrap(
        (values_t,), np.mean, n_resamples=RESAMPLES, method=method, vectorized=True,
        rng=np.random.default_rng(0), batch=1_000,
    ).confidence_interval  # fmt: skip
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return mean_interval(values_t)
    return (float(found.low), float(found.high))


def mean_over_tasks(values_t: np.ndarray, judged_t: np.ndarray) -> Estimate:
    """The mean of a value of each task, with its interval. judged_t: samples of those tasks."""
    tasks, samples = len(values_t), int(judged_t.sum())
    mean = float(values_t.mean())
    if (judged_t == 1).all():
        ends, method = wilson(round(mean * tasks), tasks), "Wilson"
    elif np.ptp(values_t) == 0:  # resamples of equal values are equal, which is no certainty
        ends, method = wilson(mean * tasks, tasks), "Wilson over tasks"
    else:
        ends, method = mean_interval(values_t), "bootstrap over tasks"
    if tasks < 20:
        method += ", indicative: fewer than 20 tasks"
    return Estimate(value=mean, ci95=ends, tasks=tasks, samples=samples, method=method)
