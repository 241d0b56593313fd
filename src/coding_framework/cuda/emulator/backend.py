"""The emulator as a backend of the judge: small shape sets, two schedules, modelled times."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace

from coding_framework.cuda.emulator.device import EmulatorDevice, current_fork_server
from coding_framework.cuda.emulator.modelled_time import modelled_result, modelled_time_ms
from coding_framework.cuda.emulator.settings import DEFAULT_GPU, EmulatorSettings
from coding_framework.cuda.expected.inputs import tensor_bytes
from coding_framework.cuda.expected.reference import Expectation, ReferenceCache, ReferencePlace
from coding_framework.cuda.host.plan_recorder import RunLimits, first_budget, instruction_budget
from coding_framework.cuda.host.properties import H200, DeviceProperties
from coding_framework.cuda.timing.backend import Backend, Equipment
from coding_framework.cuda.timing.profiler import Profile, ReplayFiles
from coding_framework.cuda.timing.results import TimedCase
from coding_framework.types import BackendName, BenchmarkResult, Task, TestCase


class EmulatorBackend:
    """See `timing/backend.py`."""

    name: BackendName = "emulator"
    driver = ""
    place: ReferencePlace | None = None
    checker: Backend | None = None

    def __init__(
        self,
        properties: DeviceProperties = H200,
        budget: Callable[[int], int] = instruction_budget,
    ) -> None:
        """properties: of the GPU that host code is told of. budget: warp instructions of one call
        for tensors of so many elements."""
        self._properties = properties
        self._budget = budget

    def for_first_call(self) -> EmulatorBackend:
        return EmulatorBackend(self._properties, first_budget)

    def warm_up(self) -> None:
        current_fork_server()

    def prepared(self, task: Task) -> Task:
        return task

    def cases(self, task: Task) -> tuple[TestCase, ...]:
        return task.cases

    def timed_case(self, task: Task) -> TestCase:
        return task.cases[0]

    def room(self, task: Task, case: TestCase) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def equip(
        self, expectation: Expectation, timed: bool, elements: int = 0
    ) -> Iterator[Equipment]:
        limits = RunLimits(instructions=self._budget(max(expectation.elements, elements)))
        settings = EmulatorSettings(
            instruction_budget=limits.instructions,
            memory_limit_bytes=limits.memory_bytes + limits.all_calls_bytes,
            address_seed=_seed_of(expectation),
            count=timed,
        )

        def open_other_schedule(in_turn: int | None = None) -> EmulatorDevice:
            other = replace(settings, block_order="interleaved", count=False)
            if in_turn is not None:
                other = replace(settings, blocks_at_once=1, count=False, instruction_budget=in_turn)
            return EmulatorDevice(other)

        with closing(EmulatorDevice(settings)) as device:
            yield Equipment(device, limits, self._properties, open_other_schedule)

    def result(
        self,
        task: Task,
        timed: TimedCase,
        naive_ms: float | None,
        references: ReferenceCache,
        seed: int,
    ) -> BenchmarkResult | None:
        return modelled_result(timed, DEFAULT_GPU, naive_ms)

    def profile(self, files: ReplayFiles) -> Profile | None:
        return None

    def time_ms(self, timed: TimedCase) -> float | None:
        return modelled_time_ms(timed.plan, timed.replays[-1], DEFAULT_GPU)


def _seed_of(expectation: Expectation) -> int:
    """One for each draw, as secret as that."""
    digest = hashlib.sha256()
    for tensor in expectation.tensors:
        digest.update(tensor_bytes(tensor.reshape(-1)[:64]))
    return int.from_bytes(digest.digest()[:8], "little")
