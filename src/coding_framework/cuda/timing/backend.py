"""What a judge asks of the device that it judges on: one Protocol, the emulator and the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from coding_framework.cuda.device.device import Device
from coding_framework.cuda.expected.reference import Expectation, ReferenceCache, ReferencePlace
from coding_framework.cuda.expected.tolerance import FindWorst, worst_of
from coding_framework.cuda.host.case_run import CaseRun, Output
from coding_framework.cuda.host.plan_recorder import RunLimits
from coding_framework.cuda.host.properties import DeviceProperties
from coding_framework.cuda.timing.measurement import Measurement
from coding_framework.cuda.timing.profiler import Profile, ReplayFiles
from coding_framework.cuda.timing.results import TimedCase
from coding_framework.types import BackendName, BenchmarkResult, Task, TestCase


@dataclass(frozen=True, slots=True)
class Equipment:
    """A device for one shape set of one candidate, and what belongs to it. Maker: `Backend.equip`;
    it can be used inside that block."""

    device: Device
    limits: RunLimits
    properties: DeviceProperties
    """What the candidate's host code is told."""
    open_other_schedule: OpenSchedule | None
    """A second device on which threads run in another order; None where the hardware's own order
    varies from run to run."""
    measure: Measure | None = None
    """Times a plan on the device; None where its launches carry modelled times."""
    computing: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while the judge itself computes with what lies on the device's GPU."""
    find_worst: FindWorst = worst_of
    """Compares an output with what is expected, where both lie."""


class OpenSchedule(Protocol):
    """Opens a device on which threads run in another order: interleaved, or (`in_turn`: the warp
    instructions of a launch) each block after the one before has ended."""

    def __call__(self, in_turn: int | None = None) -> Device: ...


class Measure(Protocol):
    """How a backend times a plan: `measurement.measure_plan` on a device."""

    def __call__(
        self,
        run: CaseRun,
        timed: TimedCase,
        draws: Sequence[Expectation],
        check: Callable[[Expectation, tuple[Output, ...]], None],
    ) -> Measurement: ...


class Backend(Protocol):
    """Makes equipment, and turns what was timed into a result."""

    name: BackendName
    driver: str
    """Version of the GPU's driver; "" on the emulator."""

    @property
    def place(self) -> ReferencePlace | None:
        """Where references of real size are computed; None: there are no such shape sets."""
        ...

    def warm_up(self) -> None:
        """Do ahead what takes a second and needs no candidate."""
        ...

    def prepared(self, task: Task) -> Task:
        """The task with names of its own for the shape sets of real size."""
        ...

    def cases(self, task: Task) -> tuple[TestCase, ...]:
        """Shape sets to judge on, in order. Those among `task.gpu_cases` are only recorded,
        repeated and timed, which checks them too."""
        ...

    def for_first_call(self) -> Backend | None:
        """The same device with the few instructions by which an endless kernel is found out on the
        smallest shape set; None where the device does not count instructions."""
        ...

    @property
    def checker(self) -> Backend | None:
        """The backend that judges small shape sets first, as it looks for faults that this device
        cannot see (races, reads of unset memory); None: this one judges alone."""
        ...

    def timed_case(self, task: Task) -> TestCase:
        """The shape set that is timed."""
        ...

    def room(self, task: Task, case: TestCase) -> AbstractContextManager[None]:
        """Entered for a shape set, references included: where it is of real size, work that needs
        more of the device's memory than others leave waits here."""
        ...

    def equip(
        self, expectation: Expectation, timed: bool, elements: int = 0
    ) -> AbstractContextManager[Equipment]:
        """Open a fresh device for a shape set. timed: whether it is the one that is timed.
        elements: of the largest one that is called on it, where that is another."""
        ...

    def result(
        self,
        task: Task,
        timed: TimedCase,
        naive_ms: float | None,
        references: ReferenceCache,
        seed: int,
    ) -> BenchmarkResult | None:
        """The timing part of a verdict; None where there is no time. seed: a draw that was used.
        Raises CandidateFault (cheating) for a time that cannot be."""
        ...

    def profile(self, files: ReplayFiles) -> Profile | None:
        """Hardware counters of a replay; None where its launches carry counters already."""
        ...

    def time_ms(self, timed: TimedCase) -> float | None:
        """The plan's device time alone: for the task's naive kernel."""
        ...
