"""What a judge asks of the device that it judges on: one Protocol, the emulator and the GPU.

Light: neither torch nor a driver is imported before they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from coding_framework.cuda.device.device import Device
from coding_framework.cuda.host.properties import DeviceProperties
from coding_framework.errors import UsageError
from coding_framework.types import BenchmarkResult, Task, TestCase

if TYPE_CHECKING:
    from coding_framework.cuda.expected.reference import Expectation, ReferenceCache
    from coding_framework.cuda.gpu.place import GpuPlace
    from coding_framework.cuda.host.record_replay import CaseRun, Output, RunLimits
    from coding_framework.cuda.timing.measurement import Measurement
    from coding_framework.cuda.timing.profiler import Profile
    from coding_framework.cuda.trial.setup import Bench
    from coding_framework.cuda.trial.trial import TimedCase

BackendName = Literal["cuda", "emulator"]


@dataclass(frozen=True, slots=True)
class Equipment:
    """What one shape set of one candidate is tried on. Open until it is left."""

    device: Device
    limits: RunLimits
    properties: DeviceProperties
    """What the candidate's host code is told."""
    open_other_schedule: Callable[[], Device] | None
    """A second device on which threads run in another order; None where the hardware's own order
    varies from run to run."""
    measure: Measure | None = None
    """Times a plan on the device; None where its launches carry modelled times."""
    computing: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while the judge itself computes with what lies on the device's GPU."""


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
    def place(self) -> GpuPlace | None:
        """Where references of real size are computed; None: there are no such shape sets."""
        ...

    def warm_up(self) -> None:
        """What takes a second and needs no candidate."""
        ...

    def prepared(self, task: Task) -> Task:
        """The task with names of its own for the shape sets of real size."""
        ...

    def cases(self, task: Task) -> tuple[TestCase, ...]:
        """Shape sets to judge on, in order. Those among `task.gpu_cases` are only recorded,
        repeated and timed, which checks them too."""
        ...

    @property
    def checker(self) -> Backend | None:
        """Who judges all other shape sets first, by checks that this device does not have; None:
        this one does it all."""
        ...

    def timed_case(self, task: Task) -> TestCase:
        """The one of them that is timed."""
        ...

    def equip(self, expectation: Expectation, timed: bool) -> AbstractContextManager[Equipment]:
        """A fresh device. timed: whether the shape set is the one that is timed."""
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

    def profile(
        self, build: Path, bench: Bench, timed: TimedCase, draw: Expectation
    ) -> Profile | None:
        """Hardware counters of a timed plan on one draw; None where its launches carry counters
        already."""
        ...

    def time_ms(self, timed: TimedCase) -> float | None:
        """The plan's device time alone: for the task's naive kernel."""
        ...


def choose_backend(name: str) -> BackendName:
    """The device that `name` stands for: "auto" is the GPU where there is one. Raises UsageError
    where "cuda" is asked for and is not here."""
    if name == "emulator":
        return "emulator"
    missing = _why_no_gpu()
    if missing is None:
        return "cuda"
    if name == "cuda":
        raise UsageError(
            f"{missing}: use --backend emulator, which needs no GPU, or auto, which takes it here"
        )
    return "emulator"


def make_backend(
    name: BackendName, baselines: Literal["none", "eager", "compiled"], launch_wall_s: float
) -> Backend:
    """The backend of that name. baselines: the times of PyTorch that a GPU's are put beside.
    launch_wall_s: what one launch may take on a GPU."""
    if name == "emulator":
        from coding_framework.cuda.emulator.backend import EmulatorBackend

        return EmulatorBackend()
    from coding_framework.cuda.gpu.backend import CudaBackend

    return CudaBackend(baselines, launch_wall_s=launch_wall_s)


def _why_no_gpu() -> str | None:
    """What is missing here to judge on a GPU; None where nothing is."""
    from coding_framework.cuda.device.gpu_sharing import gpus

    if not gpus():
        return "no NVIDIA GPU is visible here"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "the package cuda-bindings is not installed"
    return None
