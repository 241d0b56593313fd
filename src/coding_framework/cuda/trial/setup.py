"""Sets up one trial: a fresh device with the build loaded, its memory, and a fresh host process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from coding_framework.cuda.build.ptx_summary import may_poll, ptx_of
from coding_framework.cuda.device.device import Device
from coding_framework.cuda.device.work_meter import WorkMeter
from coding_framework.cuda.expected.reference import Expectation
from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.host.case_run import CaseRun, HostProcess
from coding_framework.cuda.host.plan_recorder import PlanRecorder
from coding_framework.cuda.host.program import is_answer
from coding_framework.cuda.host.properties import H200, DeviceProperties
from coding_framework.cuda.host.session import HOST_LIMITS, HostSession
from coding_framework.cuda.host.wire import Kind, RuntimeHandler
from coding_framework.cuda.model_new.build import want_extension
from coding_framework.cuda.model_new.session import AnswerSession
from coding_framework.cuda.plan.difference import PlanReader, adds_atomically
from coding_framework.cuda.plan.launch_plan import ModuleInfo
from coding_framework.cuda.sandbox import Sandbox
from coding_framework.cuda.timing.backend import Backend, Equipment, OpenSchedule

_HOST_MEMORY_BYTES = 4 << 30
"""Address space of a host process: it holds handles, not tensors."""


@dataclass(frozen=True, slots=True)
class TrialSetting:
    """What a candidate is tried with, whatever the shape set."""

    build: Path
    sandbox: Sandbox
    host_cpu_s: int
    """CPU time of a host process, for one shape set."""
    backend: Backend
    meter: WorkMeter = field(default_factory=WorkMeter)
    """What the candidate had devices do so far, over all shape sets."""


@dataclass(frozen=True, slots=True)
class TrialSetup:
    """Everything that a trial of one shape set works with. Open until `open_setup` ends."""

    run: CaseRun
    host: HostProcess
    recorder: PlanRecorder
    module: ModuleInfo
    equipment: Equipment
    adds_atomically: bool
    """The device code has floating-point atomics: its sums may vary in rounding."""
    polls: bool
    """The device code looks at memory again and again until others have changed it."""
    open_session: Callable[[ModelSignature], HostProcess]
    open_other_schedule: OpenSchedule | None
    """A second device with the same build loaded, on which threads run in another order; the caller
    closes it. None: the hardware's own order varies."""

    def at_other_sizes(self, expectation: Expectation) -> TrialSetup:
        """The same device and process, with room for other tensors as well."""
        device, inputs = self.equipment.device, len(expectation.inputs)
        run = CaseRun(device, self.recorder, expectation.tensors, inputs, moves=False)
        return replace(self, run=run, host=self.open_session(expectation.signature))

    @property
    def device_name(self) -> str:
        return self.equipment.device.name

    def plan_reader(self) -> PlanReader:
        """Reads plans recorded on this setup; knows all memory allocated so far."""
        return PlanReader(self.module, self.run.input_regions, self.recorder.blocks)


@contextmanager
def open_host(
    setting: TrialSetting,
    module: ModuleInfo,
    handler: RuntimeHandler,
    properties: DeviceProperties = H200,
    on_extension: Callable[[Kind, memoryview], None] = want_extension,
) -> Iterator[Callable[[ModelSignature], HostProcess]]:
    """Start a build's host code in a process of its own; gives how calls with a model's signature
    are made in it. Raises as `open_setup`. handler: who carries out what it asks for. on_extension:
    who hears of the kernels that an answer's build lacks."""
    limits = replace(HOST_LIMITS, cpu_s=setting.host_cpu_s, memory_bytes=_HOST_MEMORY_BYTES)
    answers = is_answer(setting.build)
    with HostSession(
        setting.build,
        module,
        handler,
        setting.sandbox,
        limits,
        properties=properties,
        on_extension=on_extension if answers else None,  # nobody else may ask for kernels
    ) as session:
        models = count()

        def open_session(signature: ModelSignature) -> HostProcess:
            if not answers:
                return session
            return AnswerSession(session, signature, anew=next(models) > 0)

        yield open_session
        setting.meter.spend(session.cpu_s)


@contextmanager
def open_setup(
    setting: TrialSetting,
    expectation: Expectation,
    *,
    timed: bool = False,
    told: DeviceProperties | None = None,
    elements: int = 0,
) -> Iterator[TrialSetup]:
    """Load a build and start its host code, with room for tensors like those of `expectation`.
    Raises CandidateFault where the candidate cannot be loaded, ExtensionWanted where an answer asks
    for more kernels than its build has.

    timed: whether the shape set is the one that the backend times. told: what host code is told of
    the device instead of the truth. elements: of the largest shape set that is called on it, where
    that is another one.
    """
    build = setting.build
    with setting.backend.equip(expectation, timed, elements) as equipment:
        device, other = equipment.device, equipment.open_other_schedule
        device.meter = setting.meter

        def open_other_schedule(in_turn: int | None = None) -> Device:
            assert other is not None
            device = other(in_turn)
            device.meter = setting.meter
            device.load(build)
            return device

        module = device.load(build)
        recorder = PlanRecorder(device, equipment.limits)
        run = CaseRun(device, recorder, expectation.tensors, len(expectation.inputs))
        with open_host(setting, module, recorder, told or equipment.properties) as open_session:
            host = open_session(expectation.signature)
            ptx = ptx_of(build)
            yield TrialSetup(
                run,
                host,
                recorder,
                module,
                equipment,
                adds_atomically(ptx),
                may_poll(ptx),
                open_session,
                None if other is None else open_other_schedule,
            )
