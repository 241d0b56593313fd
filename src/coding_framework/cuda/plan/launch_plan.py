"""The launch plan: what a candidate's host code asked of the device, as data.

Maker: the recorder, from the runtime calls of the sandboxed host process. Consumer: the device
process, which carries the plan out, and the judge, which replays it with fresh inputs. Nothing here
is trusted because the candidate said so: the recorder checks every address, length and name first.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Literal

from coding_framework.types import Status

RAISED = "the host code raised: "
"""How the reason of a runtime error begins after which the host process goes on."""


class CandidateFault(Exception):  # noqa: N818 - a fault of theirs, not an error of ours
    """The candidate's fault while it runs; the judge turns it into a verdict of this status."""

    def __init__(self, status: Status, reason: str, *, output: str = "") -> None:
        """output: what the launch printed before it failed."""
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.output = output


Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Alloc:
    """`nbytes` of global memory at `address` (256-byte aligned), contents undefined."""

    address: int
    nbytes: int


FREED_BYTE = 0xFF
"""What memory holds after a `cudaFree`: NaN and -1."""


@dataclass(frozen=True, slots=True)
class Free:
    """poisoned: bytes that hold `FREED_BYTE` from then on; never in a timed call."""

    address: int
    poisoned: int = 0


@dataclass(frozen=True, slots=True)
class Upload:
    """Bytes that the host copied to the device. Part of the plan: a computed answer goes stale."""

    address: int
    data: bytes


Layout = tuple[int, tuple[int, ...], tuple[int, ...]]
"""How the elements of a tensor lie: bytes of one, extents, and strides in elements."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Device to device."""

    destination: int
    source: int
    nbytes: int
    """Of what is written, one element after the other."""
    layout: Layout | None = None
    """Of what is read (`.contiguous()` of a strided input); None: the same."""

    @property
    def read_bytes(self) -> int:
        """From the first to the last."""
        if self.layout is None or not self.nbytes:
            return self.nbytes
        itemsize, shape, strides = self.layout
        last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        return itemsize * (1 + last)


@dataclass(frozen=True, slots=True)
class Fill:
    """cudaMemset: every byte becomes `value`."""

    address: int
    value: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Device to host. A plan that has one may depend on data, and is marked so."""

    address: int
    nbytes: int
    data: bytes = field(default=b"", compare=False, repr=False)
    """What the host read when the plan was recorded."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. `params` is the parameter block in the kernel's PTX layout."""

    kernel: str
    """Mangled name of a `.entry` of the candidate's module."""
    grid: Dim3
    block: Dim3
    shared_bytes: int
    """Dynamic shared memory."""
    params: bytes
    stream: int = 0
    cooperative: bool = False


PlanOp = Alloc | Free | Upload | Copy | Fill | ReadBack | Launch


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor on the device, as the host process claims it. Strides in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One call of `forward` on one shape set."""

    inputs: tuple[TensorRef, ...]
    """Where the inputs lay when the plan was recorded; a replay refills the same addresses."""
    ops: tuple[PlanOp, ...]
    outputs: tuple[TensorRef, ...]
    unordered: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Operations, each with the earlier ones that neither stream, event nor synchronisation orders
    before it (`stream_order.py`). () where everything is in order."""

    @property
    def reads_back(self) -> bool:
        return any(isinstance(op, ReadBack) for op in self.ops)

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(op for op in self.ops if isinstance(op, Launch))

    @property
    def workspace_bytes(self) -> int:
        """What is allocated at its peak, without the memory that outputs lie in."""
        taken = [op for op in self.ops if isinstance(op, Alloc)]
        starts = [output.address for output in self.outputs]
        kept = {a.address for a in taken if any(0 <= s - a.address < a.nbytes for s in starts)}
        return most_at_once(
            (
                (op.address, op.nbytes if isinstance(op, Alloc) else 0)
                for op in self.ops
                if isinstance(op, (Alloc, Free))
            ),
            kept,
        )


def most_at_once(changes: Iterable[tuple[int, int]], kept: Container[int]) -> int:
    """The most bytes held at one time. changes: in order (memory, its bytes; 0: it is given back).
    kept: memories that do not count."""
    held: dict[int, int] = {}
    now = most = 0
    for memory, nbytes in changes:
        if memory not in kept:
            now += nbytes - held.get(memory, 0)
            held[memory] = nbytes
            most = max(most, now)
    return most


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What the device's loader knows of a kernel, from the PTX that our compiler made."""

    name: str
    param_offsets: tuple[int, ...]
    param_sizes: tuple[int, ...]
    static_shared_bytes: int
    max_threads: int = 1024
    registers: int = 0


@dataclass(frozen=True, slots=True)
class SymbolInfo:
    """A `__device__` or `__constant__` variable after loading."""

    name: str
    address: int
    nbytes: int
    space: Literal["global", "const"]


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    kernels: dict[str, KernelInfo]
    symbols: dict[str, SymbolInfo]

    def extends(self, other: ModuleInfo) -> bool:
        """Whether it has all of `other`, and perhaps more kernels."""
        return self.symbols == other.symbols and self.kernels.items() >= other.kernels.items()


@dataclass(frozen=True, slots=True)
class Fault:
    """What a run-time check found: a race, an uninitialised read. Bounds faults are raised."""

    kind: str
    kernel: str
    line: int | None
    thread: str
    address: int | None
    count: int
    message: str
    other: int | None = None
    """Of a race between streams: the number of the earlier operation in the plan."""


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """Counters of one launch. Names are those of Nsight Compute's metrics."""

    kernel: str
    counters: dict[str, float] = field(default_factory=dict)
    time_ms: float | None = None
    """Modelled on the emulator, measured on a GPU; None where timing was not asked for."""
    faults: tuple[Fault, ...] = ()
    output: str = ""
    """What it printed with printf, bounded."""
    stored: tuple[int, ...] = ()
    """Starts of the allocations that it wrote to, where the device knows."""
