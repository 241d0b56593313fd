"""Time of a kernel that was found correct: its plan's launches, on checked outputs only.

On a GPU it is measured (`gpu/replay.py`); copies from and to the host are told apart. On the
emulator it is modelled (a sum over the plan's launches, copies, fills and transfers); only the
order of two such times means something, and every result says `modelled`. Host code is not part of
it on any backend: a candidate's host never shares a process with a clock.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from coding_framework.cuda.emulator.timing_model import Gpu, gpus, transfer_ms
from coding_framework.cuda.plan.launch_plan import (
    Copy,
    Fill,
    LaunchPlan,
    LaunchReport,
    ReadBack,
    Upload,
)
from coding_framework.cuda.timing.physical_floor import Peaks, roofline_ms
from coding_framework.errors import UsageError
from coding_framework.paths import cache_dir, write_json_atomic
from coding_framework.types import BenchmarkResult, Candidate, JudgeFn, Task, Verdict

if TYPE_CHECKING:
    from coding_framework.cuda.compiler import CUDACompiler
    from coding_framework.cuda.judge import Judge
    from coding_framework.cuda.trial.trial import TimedCase

_DEFAULT_GPU = "NVIDIA H200"
_FLOP_COUNTER = re.compile(r"smsp__sass_thread_inst_executed_op_[fdh](add|mul|fma)_pred_on\.sum")
_SUMMED = (".sum", "inst_executed", "bytes")


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
    known = sorted(time for time in times if time is not None)
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
        modelled=True,
    )


@dataclass(frozen=True, slots=True)
class Baselines:
    """Other times for the same function on the same shapes, by the same clock."""

    naive_ms: float | None = None
    eager_ms: float | None = None
    compiled_ms: float | None = None


def measured_result(
    timed: TimedCase, baselines: Baselines, flops: int, peaks: Peaks
) -> BenchmarkResult:
    """The timing part of a verdict on a GPU, of a case that was measured.

    flops: of the function's matrix products and convolutions as PyTorch does them; 0: it has none,
    or none that are counted.
    """
    assert timed.measurement is not None
    timing = timed.measurement.timing
    kernel_ms, seconds = timing.median_ms, timing.median_ms / 1e3

    def over(baseline_ms: float | None) -> float | None:
        return None if baseline_ms is None else baseline_ms / kernel_ms

    return BenchmarkResult(
        kernel_ms=kernel_ms,
        kernel_ms_ci95=(timing.low_ms, timing.high_ms),
        eager_ms=baselines.eager_ms,
        compiled_ms=baselines.compiled_ms,
        speedup=over(baselines.eager_ms),
        speedup_vs_compiled=over(baselines.compiled_ms),
        naive_ms=baselines.naive_ms,
        speedup_vs_naive=over(baselines.naive_ms),
        bytes_moved=timed.bytes_moved,
        flops=flops or None,
        achieved_gbps=timed.bytes_moved / seconds / 1e9,
        roofline_fraction=roofline_ms(timed.bytes_moved, flops, timed.dtype, peaks) / kernel_ms,
        transfer_ms=timed.measurement.transfer_ms,
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


class BaselineTimes:
    """One time a task that others are put beside (its naive kernel's, PyTorch's), measured once and
    kept on disk: the same figure in every run and every process.

    It is measured on draws of its own with a public seed, or taken over from whoever measured it
    for a verdict before.
    """

    def __init__(self, measure: Callable[[Task], float | None], salt: str) -> None:
        """measure: time in ms for a task, None where there is none (a naive kernel that is not
        correct). salt: everything else that it depends on (what it is of, device, toolkit)."""
        self._measure = measure
        self._salt = salt
        self._held: dict[str, float | None] = {}

    def known(self, task: Task) -> bool:
        """Whether `time_ms` needs no measurement."""
        key = self._key(task)
        return key in self._held or self._path(key).exists()

    def time_ms(self, task: Task) -> float | None:
        """The task's time on the shape set that is timed."""
        key = self._key(task)
        if key not in self._held:
            self._held[key] = self._load_or_measure(task, key)
        return self._held[key]

    def keep(self, task: Task, time_ms: float) -> None:
        """Take over a time that was measured elsewhere, where there is none yet."""
        key = self._key(task)
        if self._kept(key) in (None, (None,)):
            self._write(task, key, time_ms)
            self._held.pop(key, None)

    def _load_or_measure(self, task: Task, key: str) -> float | None:
        kept = self._kept(key)
        if kept is not None:
            return kept[0]
        measured = self._measure(task)
        self._write(task, key, measured)
        return measured

    def _kept(self, key: str) -> tuple[float | None] | None:
        """The time on disk, which may be that there is none; None where it is not there yet, or
        damaged."""
        try:
            found = json.loads(self._path(key).read_text())["time_ms"]
            return (None if found is None else float(found),)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, task: Task, key: str, time_ms: float | None) -> None:
        write_json_atomic(self._path(key), {"task": task.name, "time_ms": time_ms})

    def _key(self, task: Task) -> str:
        return hashlib.sha256(f"{self._salt}\0{task.model_dump_json()}".encode()).hexdigest()

    def _path(self, key: str) -> Path:
        return cache_dir() / "baselines" / key[:2] / f"{key}.json"


class CUDABenchmarker:
    """Times builds for one task, on the judge's path: what is not correct gets no time."""

    def __init__(self, task: Task | None = None, judge: Judge | None = None) -> None:
        """task: what `benchmark_kernel` times builds for. judge: None: one of its own."""
        self._task = task
        self._judge = judge

    async def benchmark_kernel(
        self, binary_path: str, kernel_name: str | None = None
    ) -> BenchmarkResult:
        """Time a successful build (`CompilationResult.binary_path`) on the task's main shape set.

        kernel_name: where given, one of the build's kernels that must be among the launches.
        Raises CandidateFault (with the status) for a build that is not correct there, UsageError
        where the benchmarker was made without a task.
        """
        if self._task is None:
            raise UsageError("a build is timed for a task: make it as CUDABenchmarker(task)")
        judge = self._own_judge(None)
        return await asyncio.to_thread(judge.benchmark, self._task, Path(binary_path), kernel_name)

    def judging(self, compiler: CUDACompiler | None = None) -> JudgeFn:
        """This benchmarker as a judge of any task, one candidate at a time, compiling with
        `compiler`. A time belongs to a correct kernel, so who times also judges."""
        judge = self._own_judge(compiler)
        one_at_a_time = asyncio.Lock()

        async def verdict(task: Task, code: str) -> Verdict:
            async with one_at_a_time:
                return await asyncio.to_thread(judge.judge, task, Candidate(code=code))

        return verdict

    def _own_judge(self, compiler: CUDACompiler | None) -> Judge:
        if self._judge is None:
            from coding_framework.cuda.judge import Judge  # imports this module

            self._judge = Judge(compiler=compiler)
        return self._judge


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
    return gpus().get(device) or gpus()[_DEFAULT_GPU]
