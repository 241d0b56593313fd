"""Timed replays of a plan, in the device process: the clock, and what lies between two calls.

Before each call, outside of the timed part: other inputs are copied to the recorded addresses, all
memory of the candidate is poisoned, its module's variables are as they were after the warm-up, and
the L2 is emptied by reading as much as it holds several times over. The timed part is one CUDA
graph with an event at either end, so that nothing of the host's lies in it, however loaded the
machine is.

Inputs come from pools: several draws of each input, end to end. A call takes a slice that begins
anywhere, so no call sees inputs that another saw, and an answer kept from an earlier call is of no
use. A few calls, at places that only this process knows, take a whole draw; what they put out is
kept for the judge to compare. No kernel can tell these from the others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from coding_framework.cuda.gpu.driver import DriverError, call, cuda
from coding_framework.cuda.gpu.machine import GpuMachine
from coding_framework.cuda.gpu.memory import POISON_BYTE
from coding_framework.cuda.plan.launch_plan import Copy, Fill, Launch, PlanOp, ReadBack, Upload
from coding_framework.cuda.timing.statistics import TimingProtocol, sample_until_known, warm_up

_FLUSH_FACTOR = 3
"""Times the size of the L2 that is read to empty it."""
_SLICE_UNIT = 256
_SMALL_BYTES = 4096
_SPIN_S = 2e-3
"""How long to look without a pause for the end of a timed call: the GPU waits for nobody else then,
and a pause between two looks is longer than what most calls take."""
_TRANSFER_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Region:
    """Memory of the candidate that a timed call reads or writes."""

    address: int
    nbytes: int
    itemsize: int = 1


@dataclass(slots=True)
class TimedPlan:
    """What is timed. Maker: the judge."""

    ops: tuple[PlanOp, ...]
    inputs: tuple[Region, ...]
    """Inputs and parameters: refilled before each call."""
    blocks: tuple[Region, ...]
    """All else that the candidate's kernels could write to: poisoned before each call."""
    outputs: tuple[Region, ...]
    draws: int
    """Whole draws in each pool; each is used for one checked call."""
    fresh: bool = True
    """False: every call takes the first draw, for a plan that is right for no other."""


_NO_PLAN = TimedPlan((), (), (), (), 0)


@dataclass(slots=True)
class Measured:
    """Maker: `Replayer.measure`. Times of the calls in ms, none left out but those of warm-up."""

    samples_ms: list[float]
    empty_ms: float
    """What the clock shows for an empty plan, and what events count of a first kernel beyond its
    own time (`event_cost.py`); already taken off."""
    upload_ms: float = 0.0
    """Device time of the plan's copies from the host, which are not part of the samples."""
    read_back_ms: float = 0.0
    not_captured: str = ""
    """Why the plan is no graph, where the launches of the host lie in its time; "" where it is."""
    checked: list[int] = field(default_factory=list)
    """Draws whose outputs are kept."""


class Replayer:
    """Pools, events and graphs on one machine, for one plan at a time."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._events = [call(cuda.cuEventCreate(0)) for _ in range(2)]
        self._flush_bytes = _FLUSH_FACTOR * machine.l2_bytes // 16 * 16
        self._flush = self._zeroed(self._flush_bytes)
        self._pools: dict[int, int] = {}
        self._kept: dict[tuple[int, int], int] = {}
        self._owned: list[tuple[int, int]] = []
        self._empty_ms: float | None = None

    # --- what the judge brings, and takes away ---------------------------------------------------

    def pool(self, region: Region, draws: int) -> int:
        """Address of room for `draws` draws of one input, end to end."""
        if region.address not in self._pools:
            self._pools[region.address] = self._own(max(1, draws * region.nbytes))
        return self._pools[region.address]

    def stage(self, region: Region, draws: int, draw: int, data: memoryview) -> None:
        """One draw of one input."""
        at = self.pool(region, draws) + draw * region.nbytes
        if len(data) != region.nbytes:
            raise ValueError(f"{len(data)} bytes for an input of {region.nbytes}")
        self._machine.memory.write(at, data)

    def kept(self, draw: int, output: int) -> int:
        """Address of what the checked call of `draw` put out."""
        return self._kept[draw, output]

    def clear(self) -> None:
        """Overwrite and give back everything that belongs to one plan; overwrite, too, what a
        kernel could have left in the memory that empties the L2."""
        stream = self._machine.stream
        for address, nbytes in (*self._owned, (self._flush, self._flush_bytes)):
            call(cuda.cuMemsetD8Async(address, 0, nbytes, stream))
        self._machine.wait()
        for address, _ in self._owned:
            call(cuda.cuMemFree(address))
        self._owned, self._pools, self._kept = [], {}, {}

    def run_once(self, ops: Sequence[PlanOp]) -> None:
        """The plan's device work, untimed: for a profiler."""
        self.enqueue_ops(ops, self._stage_uploads(ops))
        self._machine.wait("the kernels of the plan")

    # --- measuring --------------------------------------------------------------------------------

    def measure(self, plan: TimedPlan, protocol: TimingProtocol) -> Measured:
        """Raises DeviceBroken for what the kernel does meanwhile."""
        if self._empty_ms is None:
            self._empty_ms = self._time_nothing()
        for draw in range(plan.draws):
            for i, output in enumerate(plan.outputs):
                self._kept[draw, i] = self._own(max(1, output.nbytes))
        staged = self._stage_uploads(plan.ops)
        call_ = _Call(self, plan, staged)
        try:
            warm = warm_up(lambda: call_.run(None), protocol, time.monotonic)
            call_.variables = self._snapshot_variables()
            calls = protocol.fewest_calls(min(warm))
            few = calls - 1 if calls < protocol.min_samples else None  # the last one comes below
            schedule = _Schedule(plan.draws, calls if few is None else few)
            samples = sample_until_known(
                lambda: call_.run(schedule.next()), protocol, time.monotonic, few
            )
            for draw in schedule.left():  # the last of them after everything else
                samples.append(call_.run(draw))
        finally:
            call_.close()
        empty_ms = self._empty_ms + protocol.event_ms
        return Measured(
            samples_ms=[max(s - empty_ms, 1e-6) for s in samples],
            empty_ms=empty_ms,
            upload_ms=self._time_transfers([op for op in plan.ops if isinstance(op, Upload)]),
            read_back_ms=self._time_transfers([op for op in plan.ops if isinstance(op, ReadBack)]),
            not_captured=call_.not_captured,
            checked=list(range(plan.draws)),
        )

    def bandwidth(self) -> float:
        """Bytes a second that this GPU reads from its memory: the best of a few tries on 1 GiB."""
        nbytes = 1 << 30
        address = self._zeroed(nbytes)
        try:
            times = []
            for _ in range(8):
                self.enqueue_event(0, 0)
                self._machine.read_all(address, nbytes)
                self.enqueue_event(1, 0)
                self._machine.wait()
                times.append(self.elapsed_ms())
        finally:
            call(cuda.cuMemFree(address))
        return nbytes / (min(times) / 1e3)

    def time_read(self, address: int, nbytes: int, calls: int) -> float:
        """What the clock shows of a read of ours, cold, less what it shows of an empty plan."""
        return self._shown(_Read(self, address, nbytes), calls) - self._time_nothing()

    def _time_nothing(self) -> float:
        """What lies between the two events where the plan is empty."""
        return self._shown(_Call(self, _NO_PLAN, {}), 20)

    def _shown(self, call_: _Call, calls: int) -> float:
        """The median of so many calls after the first ten, in ms."""
        try:
            return median([call_.run(None) for _ in range(calls + 10)][10:])
        finally:
            call_.close()

    def _stage_uploads(self, ops: Sequence[PlanOp]) -> dict[int, int]:
        """Bytes of the plan's uploads, brought to the device once: index of the operation to
        address. In the timed part they are copied from there."""
        staged = {}
        for i, op in enumerate(ops):
            if isinstance(op, Upload) and op.data:
                staged[i] = self._own(len(op.data))
                self._machine.memory.write(staged[i], op.data)
        return staged

    def _snapshot_variables(self) -> list[tuple[int, int, int]]:
        """(address, nbytes, address of a copy) of the module's variables as they are now."""
        found = []
        for address, nbytes in self._machine.variables:
            copy = self._own(nbytes)
            call(cuda.cuMemcpyDtoDAsync(copy, address, nbytes, self._machine.stream))
            found.append((address, nbytes, copy))
        self._machine.wait()
        return found

    def _time_transfers(self, ops: Sequence[Upload | ReadBack]) -> float:
        """Device time of these copies over the bus, once each, in ms."""
        if not ops:
            return 0.0
        nbytes = max(len(op.data) if isinstance(op, Upload) else op.nbytes for op in ops)
        host = call(cuda.cuMemAllocHost(max(1, nbytes)))
        stream, (start, end) = self._machine.stream, self._events
        times = []
        try:
            for _ in range(_TRANSFER_REPEATS):
                call(cuda.cuEventRecord(start, stream))
                for op in ops:
                    if isinstance(op, Upload):
                        copied = cuda.cuMemcpyHtoDAsync(op.address, host, len(op.data), stream)
                    else:
                        copied = cuda.cuMemcpyDtoHAsync(host, op.address, op.nbytes, stream)
                    call(copied)
                call(cuda.cuEventRecord(end, stream))
                self._machine.wait()
                times.append(float(call(cuda.cuEventElapsedTime(start, end))))
        finally:
            call(cuda.cuMemFreeHost(host))
        return median(times)

    # --- one call ---------------------------------------------------------------------------------

    def enqueue_flush(self) -> None:
        """Empty the L2."""
        self._machine.read_all(self._flush, self._flush_bytes)

    def enqueue_event(self, which: int, flags: int) -> None:
        call(cuda.cuEventRecordWithFlags(self._events[which], self._machine.stream, flags))

    def elapsed_ms(self) -> float:
        return float(call(cuda.cuEventElapsedTime(*self._events)))

    def enqueue_ops(self, ops: Sequence[PlanOp], staged: dict[int, int]) -> None:
        """The plan's device work, in order."""
        stream = self._machine.stream
        for i, op in enumerate(ops):
            match op:
                case Launch():
                    self._machine.enqueue(op)
                case Upload() if i in staged:
                    call(cuda.cuMemcpyDtoDAsync(op.address, staged[i], len(op.data), stream))
                case Copy() if op.nbytes:
                    self._machine.enqueue_copy(op)
                case Fill() if op.nbytes:
                    call(cuda.cuMemsetD8Async(op.address, op.value & 0xFF, op.nbytes, stream))
                case _:
                    pass

    @property
    def machine(self) -> GpuMachine:
        return self._machine

    def _own(self, nbytes: int) -> int:
        address = int(call(cuda.cuMemAlloc(nbytes)))
        self._owned.append((address, nbytes))
        return address

    def _zeroed(self, nbytes: int) -> int:
        address = int(call(cuda.cuMemAlloc(nbytes)))
        call(cuda.cuMemsetD8Async(address, 0, nbytes, self._machine.stream))
        self._machine.wait()
        return address


class _Schedule:
    """Which draw a call checks: each once, at random places, the last one at the very end."""

    def __init__(self, draws: int, calls: int) -> None:
        secret = random.SystemRandom()
        places = secret.sample(range(calls), max(0, min(draws - 1, calls)))
        self._at = dict(zip(places, range(draws - 1), strict=False))
        self._draws = draws
        self._calls = 0
        self._done: set[int] = set()

    def next(self) -> int | None:
        """The draw of the next call; None: any slice."""
        draw = self._at.get(self._calls)
        self._calls += 1
        if draw is not None:
            self._done.add(draw)
        return draw

    def left(self) -> list[int]:
        return [draw for draw in range(self._draws) if draw not in self._done]


class _Call:
    """One timed call after another of a plan."""

    def __init__(
        self,
        replayer: Replayer,
        plan: TimedPlan,
        staged: dict[int, int],
    ) -> None:
        self._replayer = replayer
        self._plan = plan
        self._staged = staged
        self.variables: list[tuple[int, int, int]] = []
        """Put back before each call: (address, nbytes, address of a copy). None in warm-up, so that
        a kernel that counts its launches gets on."""
        self._random = random.SystemRandom()
        self.graph: Any = None
        """None where the plan cannot be captured."""
        self.not_captured = ""
        self._what = "the kernels of the timed plan" if plan.ops else ""
        try:
            self.graph = self._capture()
        except DriverError as e:
            self.not_captured = str(e)

    def run(self, draw: int | None) -> float:
        """Milliseconds between the events. draw: the whole draw to take and whose output to keep;
        None: a slice from anywhere."""
        machine = self._replayer.machine
        call(cuda.cuCtxResetPersistingL2Cache())  # nothing runs: of what the call before left there
        self._prepare(draw)
        if self.graph is not None:
            call(cuda.cuGraphLaunch(self.graph, machine.stream))
        else:
            self._enqueue(0)
        machine.wait(self._what, _SPIN_S)
        elapsed = self._replayer.elapsed_ms()
        machine.output.take()
        if draw is not None:
            self._keep(draw)
        return elapsed

    def close(self) -> None:
        if self.graph is not None:
            with suppress(DriverError):
                call(cuda.cuGraphExecDestroy(self.graph))
            self.graph = None

    def _prepare(self, draw: int | None) -> None:
        """Everything as before a first call, with other inputs."""
        stream = self._replayer.machine.stream
        for region in self._plan.inputs:
            if region.nbytes:
                source = self._replayer.pool(region, self._plan.draws) + self._offset(region, draw)
                call(cuda.cuMemcpyDtoDAsync(region.address, source, region.nbytes, stream))
        for region in self._plan.blocks:
            call(cuda.cuMemsetD8Async(region.address, POISON_BYTE, region.nbytes, stream))
        for address, nbytes, copy in self.variables:
            call(cuda.cuMemcpyDtoDAsync(address, copy, nbytes, stream))

    def _offset(self, region: Region, draw: int | None) -> int:
        """Where in the pool of an input this call's values begin."""
        if not self._plan.fresh:
            return 0
        if draw is not None:
            return draw * region.nbytes
        unit = _SLICE_UNIT if region.nbytes >= _SMALL_BYTES else region.itemsize
        steps = (self._plan.draws - 1) * region.nbytes // unit
        return unit * self._random.randint(0, steps)

    def _keep(self, draw: int) -> None:
        machine = self._replayer.machine
        for i, output in enumerate(self._plan.outputs):
            if output.nbytes:
                kept = self._replayer.kept(draw, i)
                copied = cuda.cuMemcpyDtoDAsync(kept, output.address, output.nbytes, machine.stream)
                call(copied)
        machine.wait()

    def _enqueue(self, flags: int) -> None:
        self._replayer.enqueue_flush()
        self._replayer.enqueue_event(0, flags)
        self._enqueue_plan()
        self._replayer.enqueue_event(1, flags)

    def _enqueue_plan(self) -> None:
        self._replayer.enqueue_ops(self._plan.ops, self._staged)

    def _capture(self) -> Any:
        """Flush, event, plan, event, as one graph."""
        stream = self._replayer.machine.stream
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        call(cuda.cuStreamBeginCapture(stream, mode))
        try:
            self._enqueue(cuda.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL.value)
        finally:  # also after a failure, or the stream stays in capture
            ended = cuda.cuStreamEndCapture(stream)
        graph = call(ended)
        try:
            return call(cuda.cuGraphInstantiate(graph, 0))
        finally:
            call(cuda.cuGraphDestroy(graph))


class _Read(_Call):
    """One read of ours after another, by the clock of a plan."""

    def __init__(self, replayer: Replayer, address: int, nbytes: int) -> None:
        self._read = (address, nbytes)
        super().__init__(replayer, _NO_PLAN, {})

    def _enqueue_plan(self) -> None:
        self._replayer.machine.read_all(*self._read)
