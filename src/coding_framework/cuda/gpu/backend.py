"""A GPU as a backend of the judge: the task's shape sets, then one of real size, which is timed."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from coding_framework.cuda.device.gpu_sharing import Gpu
from coding_framework.cuda.expected.inputs import TORCH_DTYPES, draw_large_inputs
from coding_framework.cuda.expected.reference import (
    Expectation,
    ReferenceCache,
    reference_model,
    require_trusted,
    task_digest,
    weights_seed,
)
from coding_framework.cuda.gpu.baselines import time_compiled, time_model
from coding_framework.cuda.gpu.device import CudaDevice
from coding_framework.cuda.gpu.event_cost import protocol_on
from coding_framework.cuda.gpu.memory_need import MemoryNeed, memory_need
from coding_framework.cuda.gpu.place import GPU_CASE, GpuPlace, place_of
from coding_framework.cuda.gpu.settings import LAUNCH_WALL_S, GpuSettings
from coding_framework.cuda.gpu.tolerance_kernels import build_kernels, worst_where_it_lies
from coding_framework.cuda.host.case_run import CaseRun, Output
from coding_framework.cuda.host.plan_recorder import RunLimits
from coding_framework.cuda.host.properties import DeviceProperties
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.timing.backend import Backend, Equipment
from coding_framework.cuda.timing.baseline_times import BaselineTimes
from coding_framework.cuda.timing.measurement import Measurement, measure_plan
from coding_framework.cuda.timing.physical_floor import Peaks, floor_ms, is_impossible, peaks_of
from coding_framework.cuda.timing.profiler import Profile, ReplayFiles, profile_plan
from coding_framework.cuda.timing.results import TimedCase, measured_result
from coding_framework.cuda.timing.statistics import Timing
from coding_framework.errors import DeviceFullError, UsageError
from coding_framework.paths import cache_dir, write_json_atomic
from coding_framework.reference_model import is_in_tf32, products_as_they_are
from coding_framework.types import (
    TIMED,
    BackendName,
    BaselineName,
    BaselinesName,
    BenchmarkResult,
    Status,
    Task,
    TestCase,
)

_LEAST_MEMORY = 2 << 30
_MEMORY_FACTOR = 8
"""Device memory that a candidate may take, over that of inputs, parameters and outputs."""
_PUBLIC_SECRET = b"baseline"


class CudaBackend:
    """See `timing/backend.py`. Raises DeviceError where no GPU can be used."""

    name: BackendName = "cuda"

    def __init__(
        self,
        baselines: BaselinesName = "eager",
        launch_wall_s: float = LAUNCH_WALL_S,
        make_checker: Callable[[DeviceProperties], Backend] | None = None,
    ) -> None:
        """baselines: which times of PyTorch are taken. make_checker: makes the backend that judges
        small shape sets first, for a GPU of these properties."""
        self._wanted = baselines
        self._usual = GpuSettings(launch_wall_s=launch_wall_s)
        with CudaDevice(self._usual) as device:
            self.gpu: Gpu = device.gpu
            self.driver = device.gpu.driver
            self._properties = DeviceProperties(**device.facts["properties"])
            self.peaks: Peaks = peaks_of(device.name, _bandwidth(device), self._properties.l2_bytes)
        self.protocol = protocol_on(self.gpu)
        self.checker = make_checker(self._properties) if make_checker is not None else None
        self._times: dict[str, BaselineTimes] = {}
        self._needed: dict[tuple[str, str], MemoryNeed] = {}
        self._entered = MemoryNeed(0, 0)
        """Of the shape set that was entered last."""

    @functools.cached_property
    def place(self) -> GpuPlace:
        return place_of(self.gpu)

    def warm_up(self) -> None:
        build_kernels(self._properties.major, self._properties.minor)
        with self.place.working():
            pass
        if self.checker is not None:
            self.checker.warm_up()

    # --- what is judged ---------------------------------------------------------------------------

    def for_first_call(self) -> None:
        return None

    def prepared(self, task: Task) -> Task:
        if self._properties.major < 8 and is_in_tf32(task.reference):
            raise UsageError(
                f"task {task.name!r} asks for TF32, which {self.gpu.name} does not have: judge it "
                "on a GPU of compute capability 8.0 or newer, or take the statement out"
            )
        renamed = tuple(
            case
            if case.name.startswith(GPU_CASE)
            else case.model_copy(update={"name": f"{GPU_CASE}{case.name}"})
            for case in task.gpu_cases
        )
        return task.model_copy(update={"gpu_cases": renamed})

    def cases(self, task: Task) -> tuple[TestCase, ...]:
        return (*task.cases, *task.gpu_cases[:1])

    def timed_case(self, task: Task) -> TestCase:
        return task.gpu_cases[0] if task.gpu_cases else task.cases[0]

    def room(self, task: Task, case: TestCase) -> AbstractContextManager[None]:
        self._entered = MemoryNeed(0, 0)
        if case not in task.gpu_cases:
            return nullcontext()
        key = (task_digest(task), case.name)
        if key not in self._needed:
            self._needed[key] = memory_need(task, case)
        self._entered = self._needed[key]
        return self.place.room(self._entered.working)

    @contextmanager
    def equip(
        self, expectation: Expectation, timed: bool, elements: int = 0
    ) -> Iterator[Equipment]:
        inputs = sum(t.numel() * t.element_size() for t in expectation.inputs)
        needed = sum(t.numel() * t.element_size() for t in expectation.parameters) + inputs
        needed += sum(o.native.numel() * o.native.element_size() for o in expectation.outputs)
        limits = RunLimits(
            memory_bytes=max(
                _LEAST_MEMORY, _MEMORY_FACTOR * needed, needed + 2 * self._entered.results
            ),
            output_bytes=max(256 << 20, 2 * needed),
        )
        # inputs twice: they have a second place, for a call that finds them moved
        most = limits.all_calls_bytes + needed + inputs
        with closing(CudaDevice(self._settings(most))) as device:
            measure = functools.partial(self._measure, device) if timed else None
            yield Equipment(
                device,
                limits,
                self._properties,
                open_other_schedule=None,
                measure=measure,
                computing=self.place.computing,
                find_worst=worst_where_it_lies,
            )

    def _settings(self, memory_bytes: int) -> GpuSettings:
        """Limits in a few steps, so that a process that waits can be taken for another task."""
        if memory_bytes <= self._usual.memory_limit_bytes:
            return self._usual
        return replace(self._usual, memory_limit_bytes=self.gpu.memory_bytes)

    def _measure(
        self,
        device: CudaDevice,
        run: CaseRun,
        timed: TimedCase,
        draws: Sequence[Expectation],
        check: Callable[[Expectation, tuple[Output, ...]], None],
    ) -> Measurement:
        fresh = timed.own_seed is None
        return measure_plan(device, run, timed.plan, draws, check, self.protocol, fresh=fresh)

    # --- what comes of it -------------------------------------------------------------------------

    def time_ms(self, timed: TimedCase) -> float | None:
        return timed.measurement.timing.median_ms if timed.measurement is not None else None

    def result(
        self,
        task: Task,
        timed: TimedCase,
        naive_ms: float | None,
        references: ReferenceCache,
        seed: int,
    ) -> BenchmarkResult | None:
        if timed.measurement is None:
            return None
        self._require_possible(task, timed, references, seed)
        case = self.timed_case(task)
        return measured_result(
            timed,
            references.flops(task, case, seed),
            self.peaks,
            naive_ms=naive_ms,
            pytorch_ms={
                name: self._times_of(_as_asked(name, task)).time_ms(task)
                for name in TIMED[self._wanted]
            },
        )

    def _require_possible(
        self, task: Task, timed: TimedCase, references: ReferenceCache, seed: int
    ) -> None:
        """Raises CandidateFault for a time below what memory allows."""
        assert timed.measurement is not None
        timing, outputs = timed.measurement.timing, timed.output_bytes
        case = self.timed_case(task)
        inputs = sum(math.prod(i.shape) * TORCH_DTYPES[i.dtype].itemsize for i in case.inputs)
        if not is_impossible(timing.high_ms, floor_ms(inputs, outputs, self.peaks)):
            return
        needed = references.needed_input_bytes(task, case, (seed, seed + 1))
        floor = floor_ms(needed, outputs, self.peaks)
        if is_impossible(timing.high_ms, floor):
            raise CandidateFault(
                Status.CHEATING,
                f"{1e3 * timing.median_ms:.1f} us are below the {1e3 * floor:.1f} us that it takes "
                f"to move the {needed + outputs} bytes of the function",
            )

    def profile(self, files: ReplayFiles) -> Profile | None:
        return profile_plan(files, self.gpu)

    # --- baselines --------------------------------------------------------------------------------

    def _times_of(self, mode: BaselineName) -> BaselineTimes:
        """Milliseconds of PyTorch on the timed shape set, measured once and kept."""
        if mode not in self._times:
            every_gpu = replace(self.protocol, event_ms=float(self.protocol.event_ms > 0))
            tuned = " tuned" if self._tunes and mode.startswith("compiled") else ""
            salt = (
                f"{mode}{tuned} {self.gpu.name} {self.gpu.driver} {torch.__version__} {every_gpu}"
            )
            measure = functools.partial(self._measure_baseline, mode)
            self._times[mode] = BaselineTimes(measure, salt)
        return self._times[mode]

    @property
    def _tunes(self) -> bool:
        return self._wanted == "max-autotune"

    def _measure_baseline(self, mode: BaselineName, task: Task) -> float | None:
        with self.room(task, self.timed_case(task)):
            timing = self.time_reference(task, mode)
        return None if timing is None else timing.median_ms

    def time_reference(self, task: Task, mode: BaselineName) -> Timing | None:
        """PyTorch's own time for a prepared task, on public draws; None where it cannot be
        compiled. Raises DeviceFullError where the GPU has no room for it."""
        require_trusted(task)
        case, digest = self.timed_case(task), task_digest(task)
        with self.place.working():
            draws = [
                draw_large_inputs(case, _PUBLIC_SECRET, digest, seed, self.place.device)
                for seed in range(2)
            ]
            weights = weights_seed(_PUBLIC_SECRET, digest, case, 0)
            with reference_model(task, case, 0, weights, draws[0]) as (model, *_):
                pass
        in_tf32 = mode.endswith("_tf32") or is_in_tf32(task.reference)
        try:
            with products_as_they_are("high" if in_tf32 else None):
                if mode.startswith("eager"):
                    return time_model(model, draws, self.place, self.protocol)
                return time_compiled(model, draws, self.place, self.protocol, tune=self._tunes)
        except torch.OutOfMemoryError as e:
            told = f"the GPU has no room for the baseline {mode} of {task.name}"
            raise DeviceFullError(f"{told}: {e}") from e


def _as_asked(name: BaselineName, task: Task) -> BaselineName:
    """A task in TF32 has PyTorch's products in it anyway: one time serves under both names."""
    if not is_in_tf32(task.reference):
        return name
    return "eager" if name.startswith("eager") else "compiled"


def _bandwidth(device: CudaDevice) -> float:
    """What this GPU reads a second, measured once a machine and driver."""
    path = cache_dir() / "gpus" / device.gpu.uuid / "bandwidth.json"
    try:
        kept: dict[str, Any] = json.loads(path.read_text())
        if kept["driver"] == device.gpu.driver:
            return float(kept["bytes_per_s"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there yet, or damaged: measured again
    measured = device.bandwidth()
    write_json_atomic(path, {"driver": device.gpu.driver, "bytes_per_s": measured})
    return measured
