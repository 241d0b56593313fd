"""Rollouts of kernels: which of two kernels of one operation runs, decided as those of models.

    config = kernel_rollout("bias_gelu", incumbent="sha256:...", candidate="sha256:...")
    router.route("bias_gelu", unit_of(secret, kernel_unit(process, shape_key, time.time())))
    outcome = kernel_outcome(incumbent_ms, served_ms)      # once a unit, when its minute is over

The unit is a process, a shape key and a minute: for a minute that process runs one arm's kernel at
that shape, in turn with the incumbent, and both are timed. The goal is the logarithm of the
incumbent's time over that of the arm's kernel. In the incumbent's arm the incumbent runs in turn
with itself, so that the noise of timing is the same in both arms. Programs take part by
`apply/trials.py`; everything here is pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from coding_framework.deployment.ab_testing import ABTestConfig, Metric, RampStep, TestVariant
from coding_framework.deployment.outcomes import Outcome

DATABASE = "rollouts.sqlite"
"""Of the rollouts of a registry's kernels, in its folder."""
GOAL = "log_time_ratio"
LONGEST = math.log(4.0)
"""Ratios are clipped to a quarter and four: one odd timing moves nothing."""
SLOWER = 0.97
"""A kernel whose speed is below this share of the incumbent's is slower."""
MINUTE_S = 60.0
KERNEL_METRICS = (
    Metric(name=GOAL, kind="goal", type="bounded_mean", low=-LONGEST, high=LONGEST),
    Metric(name="mismatch", kind="guardrail", type="bad_event", relative_risk=1.0),
    Metric(name="fault", kind="guardrail", type="bad_event", relative_risk=1.0),
    Metric(name="slower", kind="guardrail", type="bad_event"),
)
KERNEL_STEPS = (
    RampStep(share=0.05, min_dwell_s=300.0, min_units=20),
    RampStep(share=0.25, min_dwell_s=300.0, min_units=100),
    RampStep(share=0.50, min_dwell_s=0.0, min_units=0),
)


def kernel_rollout(
    op: str, *, incumbent: str, candidate: str, horizon_units: int = 2000, **settings: object
) -> ABTestConfig:
    """A rollout of a kernel against the one that runs. op: the alias; incumbent, candidate: ids of
    kernels, registered as versions. settings: other fields of `ABTestConfig`.

    horizon_units: where a unit's time ratio varies by a tenth (standard deviation), 2,000 units
    find a difference of 3% nearly always.
    """
    given = {
        "alias": op,
        "incumbent": TestVariant(name="incumbent", version=incumbent),
        "candidate": TestVariant(name="candidate", version=candidate),
        "unit": "process",
        "window_s": 2 * MINUTE_S,
        "shadow_units": 0,
        "metrics": KERNEL_METRICS,
        "steps": KERNEL_STEPS,
        "horizon_units": horizon_units,
    }
    return ABTestConfig.model_validate(given | settings)


def kernel_unit(process: str, shape_key: str, now_s: float) -> str:
    """What `unit_of` takes: this process at this shape in this minute. process: unique among all
    that share a rollout, for example host, process id and its start."""
    return f"{process}/{shape_key}/{math.floor(now_s / MINUTE_S)}"


def log_time_ratio(incumbent_ms: Sequence[float], served_ms: Sequence[float]) -> float:
    """Logarithm of the incumbent's median time over the served kernel's, within ±log 4; above 0 it
    is faster. Times of calls in turn, in milliseconds. Raises ValueError for none, or for one that
    is no positive number."""
    times = (*incumbent_ms, *served_ms)
    if not incumbent_ms or not served_ms or not all(math.isfinite(t) and t > 0 for t in times):
        raise ValueError("both kernels need times, each a positive number of milliseconds")
    ratio = math.log(statistics.median(incumbent_ms) / statistics.median(served_ms))
    return min(max(ratio, -LONGEST), LONGEST)


def kernel_outcome(
    incumbent_ms: Sequence[float],
    served_ms: Sequence[float],
    *,
    mismatch: bool = False,
    fault: bool = False,
) -> Outcome:
    """What came of a unit. mismatch: a sampled check differed from the fallback; fault: the kernel
    could not be loaded or launched. A unit with either counts as the slowest there is, so that a
    kernel that fails cannot win by the calls that it survived. Raises as `log_time_ratio`."""
    bad = [name for name, happened in (("mismatch", mismatch), ("fault", fault)) if happened]
    value = -LONGEST if bad else log_time_ratio(incumbent_ms, served_ms)
    if value < math.log(SLOWER):
        bad.append("slower")
    return Outcome(status="not_judged", values={GOAL: value}, bad=tuple(bad))


def as_speedup(effect: float) -> float:
    """The candidate's speed over the incumbent's, of an effect as a rollout tells it: a share of
    the goal's range."""
    return math.exp(effect * 2 * LONGEST)
