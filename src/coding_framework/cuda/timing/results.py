"""What timing is given and what it gives: the plan of a case that passed, and its result.

A result counts device work on checked outputs only. Host code is not part of it on any backend: a
candidate's host never shares a process with a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coding_framework.cuda.plan.launch_plan import LaunchPlan, LaunchReport
from coding_framework.cuda.timing.physical_floor import Peaks, roofline_ms
from coding_framework.types import BaselineName, BenchmarkResult

if TYPE_CHECKING:  # imports torch, which takes a second
    from coding_framework.cuda.timing.measurement import Measurement

_SUMMED = (".sum", "inst_executed", "bytes")


FREE_HOST_MS, FREE_OPERATION_MS = 5.0, 0.1
"""Host time of a call that costs nothing: the device works meanwhile, and each operation here takes
a message that elsewhere is none."""


@dataclass(frozen=True, slots=True)
class TimedCase:
    """What timing needs of a case that passed: every report here belongs to a checked output.
    Maker: the trial. Consumers: the backend and the judge."""

    plan: LaunchPlan
    replays: tuple[tuple[LaunchReport, ...], ...]
    bytes_moved: int
    """Inputs, parameters and outputs once."""
    output_bytes: int = 0
    dtype: str = "float32"
    """Of the first input."""
    own_seed: int | None = None
    """The only draw that the plan is right for, where its launches depend on values; else None."""
    measurement: Measurement | None = None
    """Where the device has a clock."""
    host_ms: float | None = None
    """Processor time of the host code for a call."""

    @property
    def delay_ms(self) -> float:
        """What a call waits for its host code, beyond what its device work may hide."""
        free = FREE_HOST_MS + FREE_OPERATION_MS * len(self.plan.ops)
        return max(0.0, (self.host_ms or 0.0) - free)


def measured_result(
    timed: TimedCase,
    flops: int,
    peaks: Peaks,
    *,
    naive_ms: float | None,
    pytorch_ms: Mapping[BaselineName, float | None],
) -> BenchmarkResult:
    """The timing part of a verdict on a GPU, of a case that was measured, beside other times for
    the same function on the same shapes, by the same clock.

    flops: of the function's matrix products and convolutions as PyTorch does them; 0: it has none,
    or none that are counted. pytorch_ms: of those baselines that were asked for.
    """
    assert timed.measurement is not None
    timing = timed.measurement.timing
    delay_ms = timed.delay_ms
    kernel_ms, seconds = timing.median_ms + delay_ms, timing.median_ms / 1e3

    def over(baseline_ms: float | None) -> float | None:
        return None if baseline_ms is None else baseline_ms / kernel_ms

    return BenchmarkResult(
        kernel_ms=kernel_ms,
        kernel_ms_ci95=(timing.low_ms + delay_ms, timing.high_ms + delay_ms),
        **{f"{name}_ms": time_ms for name, time_ms in pytorch_ms.items()},
        speedup=over(pytorch_ms.get("eager")),
        speedup_vs_compiled=over(pytorch_ms.get("compiled")),
        naive_ms=naive_ms,
        speedup_vs_naive=over(naive_ms),
        bytes_moved=timed.bytes_moved,
        flops=flops or None,
        achieved_gbps=timed.bytes_moved / seconds / 1e9,
        roofline_fraction=roofline_ms(timed.bytes_moved, flops, timed.dtype, peaks) / kernel_ms,
        transfer_ms=timed.measurement.transfer_ms,
        host_ms=timed.host_ms,
        modelled=False,
    )


def summed_counters(reports: Sequence[LaunchReport]) -> dict[str, float]:
    """Counters over all launches of a plan: sums are added, ratios weighted by launch time."""
    totals: dict[str, float] = {}
    weights: dict[str, float] = {}
    for report in reports:
        weight = report.time_ms or 1e-9
        for name, value in report.counters.items():
            share = 1.0 if name.endswith(_SUMMED) else weight
            totals[name] = totals.get(name, 0.0) + share * value
            weights[name] = weights.get(name, 0.0) + share
    return {
        name: total if name.endswith(_SUMMED) else total / weights[name]
        for name, total in sorted(totals.items())
    }
