"""Records a candidate's calls anew in processes of their own, on paper, and compares the plans.

What host code decides by its process (an address, a random number, the clock) or by how often it
was called shows as another plan. Nothing is carried out, so that a recording costs the start of a
process and a millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from coding_framework.cuda.build.block_bits import too_few_bits
from coding_framework.cuda.build.kernel_names import readable
from coding_framework.cuda.build.ptx_summary import (
    kernel_body,
    may_poll,
    ptx_of,
    unread_parameters,
)
from coding_framework.cuda.emulator.settings import DEFAULT_GPU
from coding_framework.cuda.emulator.timing_model import gpu, occupancy
from coding_framework.cuda.expected.inputs import TORCH_DTYPES, laid_out, spanned
from coding_framework.cuda.expected.reference import Expectation
from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.host.case_run import HostProcess
from coding_framework.cuda.host.paper_device import PaperDevice, ReadsBackError
from coding_framework.cuda.host.plan_recorder import PlanRecorder, RunLimits
from coding_framework.cuda.host.program import is_answer
from coding_framework.cuda.host.wire import HostArg
from coding_framework.cuda.model_new.build import ExtensionWanted
from coding_framework.cuda.plan.difference import PlanReader, Unread
from coding_framework.cuda.plan.launch_plan import (
    CandidateFault,
    Launch,
    LaunchPlan,
    ModuleInfo,
    TensorRef,
)
from coding_framework.cuda.plan.moved import moved_ops, moves
from coding_framework.cuda.sandbox.reused import ReusedSandbox
from coding_framework.cuda.trial.setup import TrialSetting, TrialSetup, open_host
from coding_framework.types import Status, TestCase

PROCESSES = 10
"""A fair coin that host code throws in its process falls alike in the trial's and all of these once
in 1,024 times."""
CALLS = 16
"""Further calls on each shape set in the last of them: half of them on the same inputs, then each
with its inputs elsewhere."""

ANSWER_CALLS = 64
"""The same of an answer in Python: nobody looks at what its variables hold, so that each counts."""

_PUBLISHED = RunLimits(memory_bytes=1 << 40, upload_bytes=1 << 32, operations=100_000)
"""At real sizes, on paper."""

_AT_ANY_SIZE = (Status.RUNTIME_ERROR, Status.WRONG_OUTPUT)
"""Faults that have nothing to do with limits which are for small sizes."""
_FEW, MANY = 4, 1100
"""Calls that show whether host code counts them, and more calls of one that does: half a second."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The first call on one shape set, as its trial recorded it."""

    case: str
    plan: LaunchPlan
    arguments: tuple[HostArg, ...]
    regions: tuple[tuple[int, int, int], ...]
    """(address, nbytes, index) of every place of the inputs and parameters."""
    inputs: int
    """How many of them are inputs, which may lie elsewhere in another call."""
    blocks: dict[int, int]
    signature: ModelSignature
    waits: bool = False
    """Whether a block of it waits for later ones."""


def recorded_call(
    case: str, plan: LaunchPlan, setup: TrialSetup, first: Expectation
) -> RecordedCall:
    """What other processes must repeat. first: the draw of the call."""
    run = setup.run
    arguments = run.arguments(setup.host, first.scalars, first.signature.parameter_names)
    blocks = dict(setup.recorder.blocks)
    return RecordedCall(
        case, plan, arguments, run.input_regions, run.inputs, blocks, first.signature
    )


def require_same_plans(
    setting: TrialSetting, module: ModuleInfo, calls: Sequence[RecordedCall], limits: RunLimits
) -> float | None:
    """Milliseconds of processor time that a later call takes; None where nobody saw it. Raises
    CandidateFault where another process, or a later call, asks for other work than the trial's
    first call did."""
    dear = is_answer(setting.build) and not isinstance(setting.sandbox, ReusedSandbox)
    last = 0 if dear else PROCESSES - 1
    unread = unread_parameters(ptx_of(setting.build))
    host_ms = None
    try:
        for number in range(last + 1):
            calls = [*calls[1:], calls[0]]  # another shape set comes first
            if number == PROCESSES // 2 and isinstance(setting.sandbox, ReusedSandbox):
                setting.sandbox.close()  # copies of one Python hash texts alike
            host_ms = _require_same(setting, module, calls, limits, unread, last=number == last)
    except (ReadsBackError, ExtensionWanted):
        pass  # no more can be recorded: what it does next depends on what it reads, or is compiled
    return host_ms


def require_published(
    setting: TrialSetting, module: ModuleInfo, call: RecordedCall, case: TestCase
) -> None:
    """Raises CandidateFault where the host code fails at sizes that nothing here is run at: it
    refuses them, or asks for a launch outside of CUDA's limits, or one of more blocks than the
    kernel's index counts, or than may wait for each other. call: one at other sizes."""
    paper = PaperDevice()
    recorder = PlanRecorder(paper, _PUBLISHED)
    now = {}
    for place, spec in zip(call.plan.inputs[: call.inputs], case.inputs, strict=True):
        itemsize = TORCH_DTYPES[spec.dtype].itemsize
        tensor = laid_out(torch.empty(spec.shape, device="meta"), spec)
        address = paper.alloc(itemsize * (spec.start + spanned(spec.shape, tensor.stride())))
        address += itemsize * spec.start
        now[place.address] = TensorRef(address, spec.shape, tensor.stride(), spec.dtype)
    arguments = tuple(
        now.get(a.address, a) if isinstance(a, TensorRef) else a for a in call.arguments
    )
    try:
        with open_host(setting, module, recorder) as open_session:
            open_session(call.signature).call(arguments)
        _require_bits(ptx_of(setting.build), recorder)
        _require_room(ptx_of(setting.build), module, recorder, waits=call.waits)
    except (ReadsBackError, ExtensionWanted):
        return
    except CandidateFault as fault:
        if fault.status in _AT_ANY_SIZE:  # not beyond limits that are for small sizes
            shapes = ", ".join("x".join(map(str, spec.shape)) for spec in case.inputs)
            raise CandidateFault(
                fault.status, f"at the published size ({shapes}): {fault.reason}"
            ) from fault


def _require_room(ptx: str, module: ModuleInfo, recorder: PlanRecorder, *, waits: bool) -> None:
    """Raises CandidateFault for a launch of more blocks than the GPU holds at once, of a kernel
    whose blocks wait for later ones: those never start. waits: whether there is such a kernel."""
    device = gpu(DEFAULT_GPU)
    launches = [op for op in recorder.operations if isinstance(op, Launch)]
    polling = {op.kernel for op in launches if may_poll(kernel_body(ptx, op.kernel) or "")}
    if not waits or len(polling) != 1:  # of several nobody knows which one waits
        return
    for op in launches:
        if op.kernel not in polling:
            continue
        kernel = module.kernels[op.kernel]
        shared = kernel.static_shared_bytes + op.shared_bytes
        held = occupancy(device, math.prod(op.block), kernel.registers, shared).blocks
        room, blocks = held * device.multiprocessors, math.prod(op.grid)
        if blocks > room:
            raise CandidateFault(
                Status.RUNTIME_ERROR,
                f"kernel {readable(op.kernel)}: a block waits for later ones, and of its {blocks} "
                f"blocks the GPU holds {room} at once: it never ends",
            )


def _require_bits(ptx: str, recorder: PlanRecorder) -> None:
    """Raises CandidateFault for a launch of which blocks cannot be told apart."""
    launches = (op for op in recorder.operations if isinstance(op, Launch))
    for kernel, grid, block in {(op.kernel, op.grid, op.block) for op in launches}:
        why = too_few_bits(ptx, kernel, grid, block)
        if why is not None:
            raise CandidateFault(Status.WRONG_OUTPUT, f"kernel {readable(kernel)}: {why}")


def _require_same(
    setting: TrialSetting,
    module: ModuleInfo,
    calls: Sequence[RecordedCall],
    limits: RunLimits,
    unread: Unread,
    *,
    last: bool,
) -> float | None:
    """As `require_same_plans`, of one process. last: later calls are recorded, too."""
    answers = is_answer(setting.build)
    further = (ANSWER_CALLS if answers else CALLS) if last else 0
    paper = PaperDevice()
    on_paper = replace(limits, earlier_bytes=1 << 40)  # where nothing lies
    again = _Again(module, PlanRecorder(paper, on_paper), unread)
    largest = max(calls, key=lambda call: sum(nbytes for _, nbytes, _ in call.regions))
    host_ms = None
    with open_host(setting, module, again.recorder) as open_session:
        for call in calls:
            host = open_session(call.signature)
            again.record(host, call)
            before = host.busy_ms if further and call is largest else None
            for i in range(further):
                again.record(host, call if i < further // 2 else _elsewhere(call, paper))
            if before is not None and (after := host.busy_ms) is not None:
                host_ms = (after - before) / further
        if last and not answers and again.counts(host, calls[0]):
            for _ in range(MANY):
                again.record(host, calls[0])
    return host_ms


@dataclass(frozen=True, slots=True)
class _Again:
    """Calls that are recorded anew, in a process of their own."""

    module: ModuleInfo
    recorder: PlanRecorder
    unread: Unread

    def record(self, host: HostProcess, call: RecordedCall) -> None:
        """Raises CandidateFault where the plan is another one."""
        recorder = self.recorder
        recorder.begin()
        outputs = host.call(call.arguments)
        plan = LaunchPlan(call.plan.inputs, recorder.operations, outputs)
        blocks = {**call.blocks, **recorder.blocks}
        difference = PlanReader(self.module, call.regions, blocks, self.unread).difference(
            call.plan, plan
        )
        if difference is not None and not difference.one_time_setup:
            raise CandidateFault(
                Status.NONDETERMINISTIC,
                f"shape set {call.case!r}: the host code asks for other work in another process or "
                f"a later call: {difference.message}",
            )

    def counts(self, host: HostProcess, call: RecordedCall) -> bool:
        """Whether each of a few more equal calls changes variables of the host code."""
        seen = []
        for _ in range(_FEW):
            self.record(host, call)
            seen.append(host.about.variables)
        return all(one != other for one, other in pairwise(seen))


def _elsewhere(call: RecordedCall, paper: PaperDevice) -> RecordedCall:
    """The call with its inputs at addresses of their own: nobody looks at those of another call."""
    theirs = [region for region in call.regions if region[2] < call.inputs]
    now = {(address, max(1, nbytes)): paper.alloc(nbytes) for address, nbytes, _ in theirs}
    place = moves(now)

    def moved(value: HostArg) -> HostArg:
        match value:
            case TensorRef():
                return replace(value, address=place(value.address))
            case tuple():
                return tuple(moved(item) for item in value)
            case list():
                return [moved(item) for item in value]
        return value

    plan = replace(
        call.plan,
        inputs=tuple(replace(p, address=place(p.address)) for p in call.plan.inputs),
        ops=moved_ops(call.plan.ops, now),
        outputs=tuple(replace(o, address=place(o.address)) for o in call.plan.outputs),
    )
    regions = tuple((place(address), nbytes, i) for address, nbytes, i in call.regions)
    arguments = tuple(moved(a) for a in call.arguments)
    return replace(call, plan=plan, arguments=arguments, regions=regions)
