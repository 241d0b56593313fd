"""Runs a candidate on one shape set and one device: calls its host code, and replays its plan.

A replay is ours alone: the same operations at the same addresses, with fresh inputs in the same
buffers and everything else poisoned. No candidate host code runs then, so nothing that it computed,
cached or timed can reach the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from coding_framework.cuda.device.device import (
    Asked,
    CountsEvents,
    Device,
    WatchesStreams,
    carry_out,
)
from coding_framework.cuda.expected.inputs import (
    DTYPE_NAMES,
    TORCH_DTYPES,
    bits_of,
    memory_of,
    spanned,
    tensor_bits,
    tensor_bytes,
    tensor_from_bits,
    tensor_view,
)
from coding_framework.cuda.host.forward_arguments import forward_arguments
from coding_framework.cuda.host.plan_recorder import PlanRecorder, RunLimits
from coding_framework.cuda.host.stream_races import stream_race
from coding_framework.cuda.host.wire import AboutCall, HostArg
from coding_framework.cuda.plan.launch_plan import (
    FREED_BYTE,
    Alloc,
    CandidateFault,
    Copy,
    Fill,
    Free,
    Launch,
    LaunchPlan,
    LaunchReport,
    PlanOp,
    ReadBack,
    TensorRef,
    Upload,
)
from coding_framework.cuda.plan.stream_order import INPUTS
from coding_framework.errors import DeviceError
from coding_framework.types import Status


class HostProcess(Protocol):
    """The sandboxed process with the candidate's host code: cuda/host/session.py."""

    functions: dict[str, int]
    """Functions of the module with their number of parameters."""

    @property
    def about(self) -> AboutCall:
        """The last call."""
        ...

    @property
    def busy_ms(self) -> float | None:
        """Processor time of the process so far; None where the system does not tell."""
        ...

    def call(
        self, arguments: Sequence[HostArg], *, function: str = "forward"
    ) -> tuple[TensorRef, ...]:
        """One call. Raises CandidateFault for what the candidate did."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """One tensor that the candidate returned, read from the device by us."""

    tensor: torch.Tensor
    """In its logical shape."""
    strides: tuple[int, ...]
    raw: torch.Tensor
    """The bytes of the elements in logical order, as they lay on the device: what a rerun must
    repeat."""
    defect: str = ""
    """What makes it no tensor of its dtype at all; "" where nothing does."""


@dataclass(frozen=True, slots=True)
class Execution:
    """What one run, by the host or replayed, left behind."""

    outputs: tuple[Output, ...]
    reports: tuple[LaunchReport, ...]
    changed_input: int | None
    """Index of an input or parameter that was written to; None: all are unchanged."""
    guard: str | None
    """A sentence if memory outside the allocations was written."""


@runtime_checkable
class SharesMemory(Protocol):
    """A device on a GPU that the judge computes references on: large tensors stay there."""

    def take(self, address: int, tensor: torch.Tensor) -> None: ...
    def give(self, address: int, nbytes: int) -> torch.Tensor: ...
    def holds(self, address: int, data: torch.Tensor) -> bool: ...


class CaseRun:
    """One shape set of one candidate: host runs and replays at will.

    The inputs have two places each, so that a call may find them moved: who works at the address of
    the first call alone is found out. Parameters stay where they are, as those of a model do.
    """

    def __init__(
        self,
        device: Device,
        recorder: PlanRecorder,
        tensors: Sequence[torch.Tensor],
        inputs: int | None = None,
        *,
        moves: bool = True,
        places: tuple[TensorRef, ...] | None = None,
    ) -> None:
        """tensors: inputs, then parameters, of the shapes of every draw, on the CPU or all on the
        device's GPU. inputs: how many are inputs; None: all. moves: whether there are calls that
        find them elsewhere. places: where they lie; None: there is no room for them yet."""
        self._device = device
        self._recorder = recorder
        self._counts_events = isinstance(device, CountsEvents)
        self.on_gpu = any(tensor.is_cuda for tensor in tensors)
        """Whether the tensors lie on the device's GPU, and results are to lie there too."""
        self.inputs = len(tensors) if inputs is None else inputs
        elsewhere = tensors[: self.inputs] if moves else ()
        self._memory = tuple(map(_room, tensors))
        made = placed(device, (*tensors, *elsewhere)) if places is None else places
        first = made[: len(tensors)]
        moved = made[len(tensors) :] or first[: self.inputs]
        self._places = (first, moved + first[self.inputs :])

    @property
    def input_regions(self) -> tuple[tuple[int, int, int], ...]:
        """(address, nbytes, index) of every place of every input and parameter."""
        return tuple(
            {
                p.address: (*region, i)
                for places in self._places
                for i, (p, region) in enumerate(zip(places, self.regions(places), strict=True))
            }.values()
        )

    def regions(self, places: Sequence[TensorRef]) -> list[tuple[int, int]]:
        """(address, nbytes) of the memory that inputs and parameters at these places lie in."""
        return [
            (place.address - before, nbytes)
            for place, (before, nbytes) in zip(places, self._memory, strict=True)
        ]

    def others(self, plan: LaunchPlan) -> tuple[tuple[int, int], ...]:
        """(address, nbytes) of everything that no input or parameter of the plan lies in: what the
        host allocated, and the places that the inputs have in other calls."""
        used = {address for address, _ in self.regions(plan.inputs)}
        places = ((a, max(1, n)) for a, n, _ in self.input_regions if a not in used)
        return (*places, *self._recorder.blocks.items())

    def contents(
        self, plan: LaunchPlan, tensors: Sequence[torch.Tensor]
    ) -> list[tuple[int, int, bytes | None]]:
        """(address, nbytes, contents) of all allocations in the order of their addresses, in which
        they were made: what it takes to replay a plan elsewhere. Contents of what is no input of
        the plan: None."""
        inputs = [
            (address, max(1, nbytes), tensor_bytes(memory_of(tensor)))
            for (address, nbytes), tensor in zip(self.regions(plan.inputs), tensors, strict=True)
        ]
        return sorted(
            [*inputs, *((address, nbytes, None) for address, nbytes in self.others(plan))],
            key=lambda region: region[0],
        )

    def host_run(
        self,
        host: HostProcess,
        tensors: Sequence[torch.Tensor],
        scalars: Sequence[bool | int | float],
        names: Sequence[str] = (),
        *,
        moved: bool = False,
        counts: bool = True,
    ) -> tuple[LaunchPlan, Execution]:
        """The candidate's `forward` on these tensors: its plan, and what came of it. names: of the
        parameters among the tensors, which are the last ones. moved: the inputs lie elsewhere.
        counts: whether somebody looks at the counters and times of its launches."""
        places = self._places[moved]
        carry_out(self._device, self._refilling(places, tensors, counts))
        self._recorder.begin()
        takes = host.functions.get("forward")
        outputs = host.call(forward_arguments(places, names, scalars, takes))
        self._recorder.require_kept(outputs)
        unordered = self._recorder.unordered()
        plan = LaunchPlan(places, self._recorder.operations, outputs, unordered)
        return plan, self._finish(plan, tensors, tuple(self._recorder.reports))

    def replay(
        self,
        plan: LaunchPlan,
        tensors: Sequence[torch.Tensor],
        *,
        checks: bool = False,
        fill: int | None = None,
        counts: bool = True,
    ) -> Execution:
        """The plan again on other tensors of the same shapes; no candidate host code runs.

        checks: also look for races and uninitialised reads (slower, same results).
        fill: a byte for all other memory instead of the device's poison, which is NaN for floats
        but -1 for integers and may be somebody's answer.
        counts: as in `host_run`.
        """
        asked = self._refilling(plan.inputs, tensors, counts)
        for address, nbytes in self.others(plan):
            asked.append(("poison", address))
            if fill is not None:
                asked.append(("fill", address, fill, nbytes))
        carry_out(self._device, asked)
        if checks and plan.unordered and isinstance(self._device, WatchesStreams):
            reports = self._carry_out_watched(plan, self._device)
        else:
            reports = self._carry_out(plan, checks=checks)
        return self._finish(plan, tensors, tuple(reports))

    def again(self, plan: LaunchPlan, tensors: Sequence[torch.Tensor]) -> Execution:
        """One more call as `plan` has it, on memory as the last one left it; what the call itself
        allocates is poisoned."""
        asked = self._refilling(plan.inputs, tensors, counts=False)
        asked += [("poison", op.address) for op in plan.ops if isinstance(op, Alloc)]
        carry_out(self._device, asked)
        return self._finish(plan, tensors, tuple(self._carry_out(plan)))

    def arguments(
        self, host: HostProcess, scalars: Sequence[bool | int | float], names: Sequence[str]
    ) -> tuple[HostArg, ...]:
        """What a first call gives `forward`."""
        return forward_arguments(self._places[0], names, scalars, host.functions.get("forward"))

    def returned(self, plan: LaunchPlan) -> list[torch.Tensor]:
        """The bytes of a call's outputs as the device has them now; without what lies in inputs."""
        inputs = [(address, size) for address, size, _ in self.input_regions]
        extents = [
            (address, nbytes)
            for address, nbytes in map(self.extent, plan.outputs)
            if nbytes and not any(a <= address < a + max(1, size) for a, size in inputs)
        ]
        return self._look([], extents)[2]

    def repeat(self, plan: LaunchPlan, calls: int) -> None:
        """The plan's device work so many times, on memory as it is; nobody looks."""
        for _ in range(calls):
            self._carry_out(plan)

    def _carry_out(self, plan: LaunchPlan, *, checks: bool = False) -> list[LaunchReport]:
        reports = (self._one(op, checks=checks) for op in plan.ops)
        return [report for report in reports if report is not None]

    def _one(self, op: PlanOp, *, checks: bool) -> LaunchReport | None:
        match op:
            case Launch():
                return self._device.launch(op, checks=checks)
            case Upload():
                self._device.upload(op.address, op.data)
            case Copy():
                self._device.copy(op.destination, op.source, op.nbytes, op.layout)
            case Fill():
                self._device.fill(op.address, op.value, op.nbytes)
            case Free() if op.poisoned:
                self._device.fill(op.address, FREED_BYTE, op.poisoned)
            case Alloc() | Free() | ReadBack():
                pass  # the memory is still there; nobody listens
        return None

    def _carry_out_watched(self, plan: LaunchPlan, watch: WatchesStreams) -> list[LaunchReport]:
        """The plan with the checks, where streams leave some of it without an order. Raises
        CandidateFault for two operations that touch the same bytes, one of them writing."""
        before, last = dict(plan.unordered), len(plan.ops)

        def touch(number: int, ranges: Sequence[tuple[int, int, bool]]) -> None:
            watch.expect(number, before.get(number, ()))
            for address, nbytes, writes in ranges:
                other = watch.touch(address, nbytes, writes)
                if other is not None:
                    raise stream_race(plan, other, number, writes, "")

        watch.watch_streams()
        reports = []
        try:
            inputs = [(a, max(1, nbytes), True) for a, nbytes in self.regions(plan.inputs)]
            touch(INPUTS, inputs)
            for number, op in enumerate(plan.ops):
                if not isinstance(op, Launch):
                    touch(number, _touched(op))
                else:
                    watch.expect(number, before.get(number, ()))
                report = self._one(op, checks=True)
                if report is None:
                    continue
                reports.append(report)
                for fault in report.faults:
                    if fault.kind == "stream_race" and fault.other is not None:
                        raise stream_race(plan, fault.other, number, None, fault.message)
            touch(last, [(*self.extent(ref), False) for ref in plan.outputs])
        finally:
            watch.end_watch()
        return reports

    def twin(self, device: Device, tensors: Sequence[torch.Tensor]) -> CaseRun:
        """The same case on another device, loaded with the same build: equal addresses, so that
        plans recorded here can be replayed there. Raises DeviceError where they are not equal."""
        recorder = PlanRecorder(device, RunLimits())
        twin = CaseRun(device, recorder, tensors, self.inputs)
        sizes = self._recorder.blocks.values()
        addresses = carry_out(device, [("alloc", nbytes) for nbytes in sizes])
        recorder.blocks.update(zip(addresses, sizes, strict=True))
        if twin._places != self._places or recorder.blocks != self._recorder.blocks:
            raise DeviceError("two devices gave other addresses for the same plan: judge again")
        return twin

    def _refilling(
        self, places: Sequence[TensorRef], tensors: Sequence[torch.Tensor], counts: bool
    ) -> list[Asked]:
        """What is left to do until these tensors lie at their places, before launches that are to
        count or not."""
        asked: list[Asked] = []
        if self._counts_events:
            asked.append(("count_events", counts))
        for (address, nbytes), tensor in zip(self.regions(places), tensors, strict=True):
            if tensor.is_cuda and nbytes:
                store_tensor(self._device, address, memory_of(tensor))
            elif nbytes:
                asked.append(("upload", address, tensor_view(memory_of(tensor))))
        return asked

    def _finish(
        self, plan: LaunchPlan, tensors: Sequence[torch.Tensor], reports: tuple[LaunchReport, ...]
    ) -> Execution:
        size = sum(map(_bytes_to_read, plan.outputs))
        allowed = self._recorder.limits.output_bytes
        if size > allowed:
            raise CandidateFault(
                Status.MEMORY_LIMIT, f"returned tensors of {size} bytes; {allowed} are allowed"
            )
        extents = [self.extent(ref) for ref in plan.outputs]
        changed, others = self._first_written(plan, tensors, reports)
        held, guard, found = self._look(others, [extent for extent in extents if extent[1]])
        if False in held:
            changed = held.index(False)
        parts = iter(found)
        bits = [next(parts) if nbytes else bits_of(b"") for _, nbytes in extents]
        return Execution(self.outputs_of(plan, bits), reports, changed, guard)

    def _first_written(
        self, plan: LaunchPlan, tensors: Sequence[torch.Tensor], reports: Sequence[LaunchReport]
    ) -> tuple[int | None, list[tuple[int, torch.Tensor]]]:
        """Index of the first input that was written to, as far as the device knows; and the places
        of those before it, with the bytes that must lie there."""
        written = _written(plan, reports)
        before: list[tuple[int, torch.Tensor]] = []
        regions = self.regions(plan.inputs)
        for i, ((address, nbytes), tensor) in enumerate(zip(regions, tensors, strict=True)):
            if any(address <= a < address + nbytes for a in written):
                return i, before
            before.append((address, tensor_bits(memory_of(tensor))))
        return None, before

    def _look(
        self, inputs: Sequence[tuple[int, torch.Tensor]], outputs: Sequence[tuple[int, int]]
    ) -> tuple[list[bool], str | None, list[torch.Tensor]]:
        """Which inputs the device holds unchanged, what its guards say, and the bytes at each of
        the outputs' extents, as flat uint8 tensors where the expectation's tensors are."""
        device = self._device
        if self.on_gpu and isinstance(device, SharesMemory):
            held = [not len(bits) or device.holds(address, bits) for address, bits in inputs]
            return held, self._device.check_guards(), [device.give(*extent) for extent in outputs]
        sizes = [(address, len(bits)) for address, bits in inputs]
        asked = [("download", *extent) for extent in [*sizes, *outputs] if extent[1]]
        guard, *data = carry_out(device, [("check_guards",), *asked])
        parts = iter(data)
        held = [not len(b) or torch.equal(bits_of(next(parts)), b) for _, b in inputs]
        return held, guard, [bits_of(part) for part in parts]

    def outputs_of(self, plan: LaunchPlan, bits: Sequence[torch.Tensor]) -> tuple[Output, ...]:
        """The plan's outputs, given the bytes that lay at each one's `extent`."""
        return tuple(output_of(ref, b) for ref, b in zip(plan.outputs, bits, strict=True))

    def extent(self, ref: TensorRef) -> tuple[int, int]:
        """(address, nbytes) of the memory that an output spans, 0 bytes where it has no elements.
        Raises CandidateFault for a claim that cannot be."""
        dtype = TORCH_DTYPES.get(ref.dtype)
        if dtype is None:
            raise CandidateFault(Status.RUNTIME_ERROR, f"returned a tensor of dtype {ref.dtype!r}")
        if math.prod(ref.shape) == 0:
            return ref.address, 0
        if min((*ref.shape, *ref.strides), default=0) < 0 or len(ref.shape) != len(ref.strides):
            raise CandidateFault(Status.RUNTIME_ERROR, "returned a tensor of impossible strides")
        nbytes = spanned(ref.shape, ref.strides) * dtype.itemsize
        self._check_inside(ref.address, nbytes)
        return ref.address, nbytes

    def _check_inside(self, address: int, nbytes: int) -> None:
        inputs = ((address, size) for address, size, _ in self.input_regions)
        regions = (*self._recorder.blocks.items(), *inputs)
        if not any(a <= address and address + nbytes <= a + size for a, size in regions):
            raise CandidateFault(
                Status.RUNTIME_ERROR,
                f"returned a tensor of {nbytes} bytes at {address:#x}, which lies in no allocation",
            )


def placed(device: Device, tensors: Sequence[torch.Tensor]) -> tuple[TensorRef, ...]:
    """Room on a device for these tensors, in order."""
    rooms = list(map(_room, tensors))
    addresses = carry_out(device, [("alloc", max(1, nbytes)) for _, nbytes in rooms])
    return tuple(
        TensorRef(address + before, tuple(t.shape), tuple(t.stride()), DTYPE_NAMES[t.dtype])
        for address, (before, _), t in zip(addresses, rooms, tensors, strict=True)
    )


def _room(tensor: torch.Tensor) -> tuple[int, int]:
    """Bytes of its memory before its first element, and of all of it."""
    memory = memory_of(tensor)
    before = int(tensor.storage_offset() - memory.storage_offset()) if len(memory) else 0
    return before * tensor.element_size(), memory.numel() * tensor.element_size()


def _touched(op: PlanOp) -> list[tuple[int, int, bool]]:
    """(address, nbytes, whether it writes) of what an operation outside of kernels touches."""
    match op:
        case Upload():
            return [(op.address, len(op.data), True)]
        case Copy():
            return [(op.source, op.read_bytes, False), (op.destination, op.nbytes, True)]
        case Fill():
            return [(op.address, op.nbytes, True)]
        case ReadBack():
            return [(op.address, op.nbytes, False)]
    return []


def _written(plan: LaunchPlan, reports: Sequence[LaunchReport]) -> frozenset[int]:
    """Addresses at which the plan wrote, as far as the device knows: what is put back afterwards
    was written all the same."""
    moves = {op.address for op in plan.ops if isinstance(op, Upload | Fill)}
    copies = {op.destination for op in plan.ops if isinstance(op, Copy)}
    return frozenset(moves | copies | {a for report in reports for a in report.stored})


def _bytes_to_read(ref: TensorRef) -> int:
    """What reading a tensor takes: large strides span much memory for few elements, and strides of
    0 make many elements of little memory."""
    count, dtype = math.prod(ref.shape), TORCH_DTYPES.get(ref.dtype)
    most = max(count, spanned(ref.shape, ref.strides)) if count else 0
    return most * (dtype.itemsize if dtype else 1)


def output_of(ref: TensorRef, bits: torch.Tensor) -> Output:
    """An output whose memory held `bits`."""
    dtype = TORCH_DTYPES[ref.dtype]
    if not len(bits):
        return Output(torch.empty(ref.shape, dtype=dtype), ref.strides, bits)
    tensor = _strided(bits, dtype, ref)
    raw = _strided(bits, torch.uint8, ref) if dtype is torch.bool else tensor
    torn = dtype is torch.bool and bool((raw > 1).any())
    defect = "it has bytes that are neither false nor true: not all was written" if torn else ""
    return Output(tensor, ref.strides, tensor_bits(raw), defect)


def _strided(bits: torch.Tensor, dtype: torch.dtype, ref: TensorRef) -> torch.Tensor:
    """The logical tensor in the memory that a reference spans."""
    return tensor_from_bits(bits, dtype).as_strided(ref.shape, ref.strides).contiguous()


def store_tensor(device: Device, address: int, tensor: torch.Tensor) -> None:
    if tensor.is_cuda and isinstance(device, SharesMemory):
        device.take(address, tensor)
    else:
        device.upload(address, tensor_bytes(tensor))
