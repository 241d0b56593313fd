"""Device memory of one candidate: allocations inside one reserved range of addresses.

Addresses are given out in ascending order and never twice, each allocation between guards of 256
bytes, so that one build always gets the same addresses and a write just outside is seen. Physical
memory is mapped behind the range as it is needed; what lies beyond is unmapped, and an access there
is a fault of the kernel. `reset` overwrites everything: the next candidate finds nothing.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from coding_framework.cuda.gpu.driver import call, cuda
from coding_framework.cuda.plan.launch_plan import CandidateFault, Copy, Layout
from coding_framework.types import Status

ALIGNMENT = 256
GUARD_BYTE, POISON_BYTE = 0xA5, 0xFF
_WANTED_BASE = 0x7E00_0000_0000
"""Where the emulator's addresses begin; a wish, which the driver need not grant."""
_CHUNK_BYTES = 64 << 20
_KEPT_BYTES = 1 << 30
"""Physical memory that stays mapped between candidates."""


class Queue(Protocol):
    """A stream, and waiting for it."""

    stream: object

    def wait(self) -> None: ...

    def enqueue_copy(self, copy: Copy) -> None: ...


@dataclass(slots=True)
class Allocation:
    address: int
    nbytes: int
    freed: bool = False


class Arena:
    """See `device_server.Memory`."""

    def __init__(self, queue: Queue, limit_bytes: int) -> None:
        """limit_bytes: what a candidate may hold; there are four times as many addresses."""
        self._queue = queue
        self.limit_bytes = limit_bytes
        self._properties = _properties()
        self._granularity = int(
            call(
                cuda.cuMemGetAllocationGranularity(
                    self._properties,
                    cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
                )
            )
        )
        self._reserved = _rounded(4 * limit_bytes, self._granularity)
        self.base = int(
            call(cuda.cuMemAddressReserve(self._reserved, self._granularity, _WANTED_BASE, 0))
        )
        self._chunks: list[tuple[int, int, Any]] = []
        """(address, nbytes, handle) of what is mapped, in ascending order without gaps."""
        self._mapped_end = self.base
        self._next = self.base + ALIGNMENT
        self._used = 0
        self.allocations: list[Allocation] = []
        self._starts: list[int] = []
        self.symbols: dict[int, int] = {}
        """Address to size of the module's variables, which the driver placed elsewhere."""

    # --- allocations ----------------------------------------------------------------------------

    def alloc(self, nbytes: int) -> int:
        """Raises CandidateFault(memory_limit) over the limit, DeviceFullError where the GPU is
        full."""
        if nbytes < 0 or self._used + nbytes > self.limit_bytes:
            raise CandidateFault(
                Status.MEMORY_LIMIT,
                f"the kernel's host code asked for {nbytes} bytes of device memory with "
                f"{self._used} in use; the limit is {self.limit_bytes}",
            )
        room = _rounded(max(1, nbytes), ALIGNMENT)
        address = self._next
        end = address + room + ALIGNMENT
        if end > self.base + self._reserved:
            raise CandidateFault(
                Status.MEMORY_LIMIT,
                f"the host code allocated more than {self._reserved >> 30} GiB in total",
            )
        self._map_up_to(end)
        self._next = end
        self._used += nbytes
        self.allocations.append(Allocation(address, nbytes))
        self._starts.append(address)
        self._set(address - ALIGNMENT, GUARD_BYTE, ALIGNMENT)
        self._set(address + nbytes, GUARD_BYTE, room - nbytes + ALIGNMENT)
        self._set(address, POISON_BYTE, nbytes)
        self._queue.wait()
        return address

    def free(self, address: int) -> None:
        found = self._exact(address)
        found.freed = True
        self._used -= found.nbytes
        self._set(address, GUARD_BYTE, found.nbytes)
        self._queue.wait()

    def poison(self, address: int) -> None:
        self._set(address, POISON_BYTE, self._exact(address).nbytes)
        self._queue.wait()

    # --- contents -------------------------------------------------------------------------------

    def upload(self, address: int, data: memoryview | bytes) -> None:
        self.require(address, len(data), "a copy to the device")
        self.write(address, data)

    def download(self, address: int, nbytes: int) -> bytes:
        self.require(address, nbytes, "a copy from the device")
        return self.read(address, nbytes)

    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes of any of our memory, unchecked."""
        data = np.empty(nbytes, np.uint8)
        if nbytes:
            host = data.ctypes.data
            call(cuda.cuMemcpyDtoHAsync(host, address, nbytes, self._queue.stream))
            self._queue.wait()
        return data.tobytes()

    def write(self, address: int, data: memoryview | bytes) -> None:
        """Bytes to any of our memory, unchecked. In stream order: a plain copy of pageable memory
        may return before the device has it, and our stream waits for no other."""
        if len(data):
            host = np.frombuffer(data, np.uint8).ctypes.data
            call(cuda.cuMemcpyHtoDAsync(address, host, len(data), self._queue.stream))
            self._queue.wait()

    def copy(
        self, destination: int, source: int, nbytes: int, layout: Layout | None = None
    ) -> None:
        copy = Copy(destination, source, nbytes, layout)
        self.require(destination, nbytes, "the destination of a copy")
        self.require(source, copy.read_bytes, "the source of a copy")
        if nbytes:
            self._queue.enqueue_copy(copy)
            self._queue.wait()

    def fill(self, address: int, value: int, nbytes: int) -> None:
        self.require(address, nbytes, "a memset")
        self._set(address, value & 0xFF, nbytes)
        self._queue.wait()

    def damage(self) -> str | None:
        """A sentence naming the first allocation whose guards were written."""
        guards = [
            (found, start, size)
            for found in self.allocations
            if not found.freed
            for start, size in _guards(found)
        ]
        if not guards:
            return None
        total = sum(size for _, _, size in guards)
        gathered = int(call(cuda.cuMemAlloc(total)))
        try:
            at = gathered
            for _, start, size in guards:
                call(cuda.cuMemcpyDtoDAsync(at, start, size, self._queue.stream))
                at += size
            self._queue.wait()
            data = np.frombuffer(self.read(gathered, total), np.uint8)
        finally:
            call(cuda.cuMemFree(gathered))
        at = 0
        for found, _, size in guards:
            if (data[at : at + size] != GUARD_BYTE).any():
                return f"memory next to the allocation at {found.address:#x} was overwritten"
            at += size
        return None

    def require(self, address: int, nbytes: int, what: str) -> None:
        """Raises CandidateFault where the range lies in no allocation and no variable."""
        at = bisect.bisect_right(self._starts, address) - 1
        if nbytes >= 0 and at >= 0:
            found = self.allocations[at]
            if not found.freed and address + nbytes <= found.address + found.nbytes:
                return
        if nbytes >= 0 and any(
            start <= address and address + nbytes <= start + size
            for start, size in self.symbols.items()
        ):
            return
        raise CandidateFault(
            Status.RUNTIME_ERROR,
            f"{what} of {nbytes} bytes at {address:#x} is outside every device allocation",
        )

    # --- between candidates ---------------------------------------------------------------------

    def reset(self) -> None:
        """Forget and overwrite all allocations; physical memory beyond what is kept goes back."""
        kept: list[tuple[int, int, Any]] = []
        held = 0
        for address, nbytes, handle in self._chunks:
            too_much = bool(kept) and held + nbytes > _KEPT_BYTES
            if too_much or address != self.base + held:
                call(cuda.cuMemUnmap(address, nbytes))
                call(cuda.cuMemRelease(handle))
            else:
                kept.append((address, nbytes, handle))
                held += nbytes
        self._chunks = kept
        self._mapped_end = self.base + held
        self._set(self.base, GUARD_BYTE, held)  # also what was never allocated, only written
        self._queue.wait()
        self._next = self.base + ALIGNMENT
        self._used = 0
        self.allocations, self._starts, self.symbols = [], [], {}

    # --- pages ----------------------------------------------------------------------------------

    def _map_up_to(self, end: int) -> None:
        if end <= self._mapped_end:
            return
        nbytes = _rounded(max(end - self._mapped_end, _CHUNK_BYTES), self._granularity)
        nbytes = min(nbytes, self.base + self._reserved - self._mapped_end)
        handle = call(cuda.cuMemCreate(nbytes, self._properties, 0))
        call(cuda.cuMemMap(self._mapped_end, nbytes, 0, handle, 0))
        access = cuda.CUmemAccessDesc()
        access.location = self._properties.location
        access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call(cuda.cuMemSetAccess(self._mapped_end, nbytes, [access], 1))
        self._chunks.append((self._mapped_end, nbytes, handle))
        self._mapped_end += nbytes

    def _exact(self, address: int) -> Allocation:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or self._starts[at] != address or self.allocations[at].freed:
            raise CandidateFault(
                Status.RUNTIME_ERROR, f"{address:#x} is not the start of a device allocation"
            )
        return self.allocations[at]

    def _set(self, address: int, value: int, nbytes: int) -> None:
        if nbytes:
            call(cuda.cuMemsetD8Async(address, value, nbytes, self._queue.stream))


def _properties() -> Any:
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    return properties


def _guards(found: Allocation) -> tuple[tuple[int, int], tuple[int, int]]:
    """(start, nbytes) of the guards before and after."""
    room = _rounded(max(1, found.nbytes), ALIGNMENT)
    return (
        (found.address - ALIGNMENT, ALIGNMENT),
        (found.address + found.nbytes, room - found.nbytes + ALIGNMENT),
    )


def _rounded(nbytes: int, unit: int) -> int:
    return (nbytes + unit - 1) // unit * unit
