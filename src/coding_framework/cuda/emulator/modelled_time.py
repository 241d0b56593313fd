"""The modelled time of a kernel that was found correct: the sum over its plan's launches, copies,
fills and transfers. Only the order of two such times means something; every result says `modelled`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from coding_framework.cuda.emulator.settings import DEFAULT_GPU
from coding_framework.cuda.emulator.timing_model import Gpu, gpus, transfer_ms
from coding_framework.cuda.plan.launch_plan import (
    Copy,
    Fill,
    LaunchPlan,
    LaunchReport,
    ReadBack,
    Upload,
)
from coding_framework.cuda.timing.results import TimedCase
from coding_framework.types import BenchmarkResult

_FLOP_COUNTER = re.compile(r"smsp__sass_thread_inst_executed_op_[fdh](add|mul|fma)_pred_on\.sum")


def modelled_time_ms(
    plan: LaunchPlan, reports: Sequence[LaunchReport], device: str
) -> float | None:
    """One replay's device time: its launches, its copies and fills, and what goes between host and
    device. None where a launch has no time."""
    times = [report.time_ms for report in reports]
    if not times or any(time is None for time in times):
        return None
    moved = sum(transfer_ms(_gpu(device), n, by_host=by_host) for n, by_host in transfers(plan))
    return sum(time for time in times if time is not None) + moved


def transfers(plan: LaunchPlan) -> list[tuple[int, bool]]:
    """A plan's operations beside its launches: bytes moved, and whether to or from the host. None
    is free, so that no work is moved out of the kernels and into them for nothing."""
    found: list[tuple[int, bool]] = []
    for op in plan.ops:
        match op:
            case Copy():
                found.append((2 * op.nbytes, False))  # read and written
            case Fill():
                found.append((op.nbytes, False))
            case Upload():
                found.append((len(op.data), True))
            case ReadBack():
                found.append((op.nbytes, True))
    return found


def modelled_result(
    timed: TimedCase, device: str, naive_ms: float | None
) -> BenchmarkResult | None:
    """The timing part of a verdict on the emulator; None where the device has no time model.

    The interval spans the replays: it is not zero where the work depends on the inputs.
    """
    times = [modelled_time_ms(timed.plan, reports, device) for reports in timed.replays]
    known = sorted(time + timed.delay_ms for time in times if time is not None)
    if not known or len(known) != len(times):
        return None
    kernel_ms = median(known)
    seconds = kernel_ms / 1e3
    bandwidth = _gpu(device).dram_gbps * 1e9
    return BenchmarkResult(
        kernel_ms=kernel_ms,
        kernel_ms_ci95=(known[0], known[-1]),
        naive_ms=naive_ms,
        speedup_vs_naive=naive_ms / kernel_ms if naive_ms is not None and kernel_ms > 0 else None,
        bytes_moved=timed.bytes_moved,
        flops=_executed_flops(timed.replays[-1]),
        achieved_gbps=timed.bytes_moved / seconds / 1e9 if seconds > 0 else None,
        roofline_fraction=timed.bytes_moved / bandwidth / seconds if seconds > 0 else None,
        host_ms=timed.host_ms,
        modelled=True,
    )


def _executed_flops(reports: Sequence[LaunchReport]) -> int | None:
    """Floating-point operations of any precision that the launches executed; a fused multiply-add
    is two. None where the device does not count them."""
    total, counted = 0.0, False
    for report in reports:
        for name, value in report.counters.items():
            match = _FLOP_COUNTER.fullmatch(name)
            if match:
                counted = True
                total += value * (2 if match[1] == "fma" else 1)
    return int(total) if counted else None


def _gpu(device: str) -> Gpu:
    """Figures of the device, or of the default one where they are not known."""
    return gpus().get(device) or gpus()[DEFAULT_GPU]
