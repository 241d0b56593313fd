"""Records the launch plan of a candidate's host code while that runs.

The host code runs in its sandbox and only *asks*; `PlanRecorder` checks each request, carries it
out on the device and writes it down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coding_framework.cuda.device.device import Device
from coding_framework.cuda.host.wire import CudaCallError
from coding_framework.cuda.plan.launch_plan import (
    FREED_BYTE,
    Alloc,
    CandidateFault,
    Copy,
    Fill,
    Free,
    Launch,
    LaunchReport,
    Layout,
    PlanOp,
    ReadBack,
    TensorRef,
    Upload,
)
from coding_framework.cuda.plan.stream_order import Ordering, StreamOrder, Unordered
from coding_framework.types import Status

EXECUTED = "smsp__inst_executed.sum"
"""Warp instructions, among the counters of a launch."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one call of `forward` may ask of the device."""

    memory_bytes: int = 2 << 30
    """Device memory, inputs excluded."""
    earlier_bytes: int = 2 << 30
    """Device memory beyond that of all calls together: what a call was given stays."""
    upload_bytes: int = 256 << 20
    output_bytes: int = 256 << 20
    """What reading all outputs may take: strides of 0 make much of little memory."""
    operations: int = 20_000
    """Allocations, copies, fills and launches together."""
    instructions: int = 1_000_000_000
    """Warp instructions of all launches, on a device that counts them. See `instruction_budget`."""

    @property
    def all_calls_bytes(self) -> int:
        """Device memory of all calls of a process together."""
        return self.memory_bytes + self.earlier_bytes


def _require_room(asked: int, limit: int, where: str) -> None:
    if asked > limit:
        raise CandidateFault(
            Status.MEMORY_LIMIT,
            f"asked for {asked >> 20} MiB of device memory{where}; the limit is {limit >> 20} MiB",
        )


def instruction_budget(elements: int) -> int:
    """Warp instructions that one call may take for tensors of so many elements (inputs, parameters
    and outputs together). A good kernel takes under one an element; the most wasteful honest ones
    seen (a block for each output of a convolution) take about 700. The emulator runs some 40
    million a second, so an endless kernel ends after 1 to 25 seconds.
    """
    return min(max(2_000 * elements, 50_000_000), 1_000_000_000)


def first_budget(elements: int) -> int:
    """Likewise of the one call by which an endless kernel is found out, on the smallest shape set:
    it ends after a second or two. Of 524 honest kernels one takes more than 474 an element there
    (3,884, and more than `instruction_budget` on larger ones); few of them take 30,000 at all.
    """
    return min(max(10_000 * elements, 5_000_000), instruction_budget(elements))


class PlanRecorder:
    """Carries out what the host process asks for, and writes it down: a `RuntimeHandler`.

    A tensor's memory stays until the end of the device: like torch's caching allocator in stream
    order, a launch may still use what the host has let go of. After a `cudaFree` it holds poison.
    """

    def __init__(self, device: Device, limits: RunLimits) -> None:
        self._device = device
        self.limits = limits
        self._ops: list[PlanOp] = []
        self._memory = self._earlier = 0
        self._uploaded = 0
        self._executed = 0.0
        self._order = StreamOrder()
        self.reports: list[LaunchReport] = []
        self.blocks: dict[int, int] = {}
        """Address to size of everything allocated by the host, over all its calls."""
        self.freed: set[int] = set()
        """Those of them that the host let go of."""

    def begin(self) -> None:
        """Start the record of a new call of `forward`; memory from earlier calls stays."""
        self._ops = []
        self.reports = []
        self._earlier += self._memory
        self._memory = 0
        self._uploaded = 0
        self._executed = 0.0
        self._order = StreamOrder()

    @property
    def fits_again(self) -> bool:
        """Whether another call may be given as much memory as the last one."""
        return self._earlier + 2 * self._memory <= self.limits.all_calls_bytes

    def unordered(self) -> Unordered:
        """Of the call that ends here, the operations that no stream orders."""
        return self._order.unordered(len(self._ops))

    @property
    def operations(self) -> tuple[PlanOp, ...]:
        return tuple(self._ops)

    def malloc(self, nbytes: int) -> int:
        """Device memory for the host; its contents are poisoned."""
        self._memory += nbytes
        _require_room(self._memory, self.limits.memory_bytes, "")
        _require_room(self._earlier + self._memory, self.limits.all_calls_bytes, " in all calls")
        address = self._device.alloc(max(1, nbytes))
        self.blocks[address] = max(1, nbytes)
        self._note(Alloc(address, max(1, nbytes)))
        return address

    def free(self, address: int, *, at_once: bool = False) -> None:
        """at_once: by a `cudaFree`: nothing may use it from then on."""
        if address not in self.blocks:
            raise CudaCallError
        self.freed.add(address)
        poisoned = self.blocks[address] if at_once else 0
        if poisoned:
            self._device.fill(address, FREED_BYTE, poisoned)
        self._note(Free(address, poisoned))

    def require_kept(self, outputs: Sequence[TensorRef]) -> None:
        """Raises CandidateFault where the call freed an output that it then returned. (A tensor
        that goes out of scope is freed after the result was sent.)"""
        freed = {op.address for op in self._ops if isinstance(op, Free)}
        for index, output in enumerate(outputs):
            if any(start <= output.address < start + self.blocks[start] for start in freed):
                raise CandidateFault(
                    Status.RUNTIME_ERROR, f"output {index} was freed before it was returned"
                )

    def upload(self, address: int, data: bytes) -> None:
        """Host to device; the bytes become part of the plan."""
        self._uploaded += len(data)
        if self._uploaded > self.limits.upload_bytes:
            raise CandidateFault(
                Status.MEMORY_LIMIT,
                f"copied more than {self.limits.upload_bytes >> 20} MiB to the device in one call",
            )
        self._device.upload(address, data)
        self._note(Upload(address, bytes(data)))

    def download(self, address: int, nbytes: int) -> bytes:
        """Device to host: marks the plan as one that may depend on data."""
        data = self._device.download(address, nbytes)
        self._note(ReadBack(address, nbytes, data))
        return data

    def copy(
        self, destination: int, source: int, nbytes: int, layout: Layout | None = None
    ) -> None:
        self._device.copy(destination, source, nbytes, layout)
        self._note(Copy(destination, source, nbytes, layout))

    def fill(self, address: int, value: int, nbytes: int) -> None:
        self._device.fill(address, value, nbytes)
        self._note(Fill(address, value, nbytes))

    def launch(self, launch: Launch) -> None:
        report = self._device.launch(launch)
        self.reports.append(report)
        self._executed += report.counters.get(EXECUTED, 0.0)
        if self._executed > self.limits.instructions:
            raise CandidateFault(
                Status.TIMEOUT,
                f"its launches take more than {self.limits.instructions:.0f} warp instructions",
            )
        self._note(launch)

    def synchronize(self) -> None:
        """Nothing to wait for: each launch has ended when the host hears of it."""
        self._order.all_done()

    def order(self, what: Ordering, one: int, other: int) -> None:
        """What the host says of its streams."""
        self._order.note(what, one, other)

    def _note(self, op: PlanOp) -> None:
        if len(self._ops) >= self.limits.operations:
            raise CandidateFault(
                Status.TIMEOUT,
                f"one call asks for more than {self.limits.operations} device operations",
            )
        if not isinstance(op, Alloc | Free):
            self._order.work(len(self._ops), op.stream if isinstance(op, Launch) else None)
        self._ops.append(op)
