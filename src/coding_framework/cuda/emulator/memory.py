"""Device memory: allocations at synthetic addresses inside one lazily backed arena.

Addresses start at 0x7e00_0000_0000, which no process of the candidate maps, and lie anywhere in the
arena: what a kernel makes of one bit of them shows. They are never used twice, so a use after free
is always seen. Every allocation lies between guards of 256 bytes.
"""

from __future__ import annotations

import bisect
import ctypes
import itertools
import math
import mmap
import random
from collections.abc import Container
from typing import Literal

from coding_framework.cuda.emulator.assembler import BASE_GLOBAL
from coding_framework.cuda.emulator.library import Alloc
from coding_framework.cuda.plan.launch_plan import CandidateFault, Copy, Layout
from coding_framework.errors import DeviceError
from coding_framework.types import Status

ALIGNMENT = 256
_GUARD_BYTE = 0xA5
_POISON_BYTE = 0xFF
WRITE_NONE, WRITE_SOME, WRITE_ALL = 0, 1, 2
_MAP_NORESERVE = 0x4000
"""Linux on x86-64 and aarch64; the mmap module of Python 3.11 does not have it."""
ARENA_BYTES = 64 << 30
"""Virtual bytes; pages are backed when they are touched."""
_SCATTER_BYTES = 32 << 30
"""The part in which allocations lie anywhere; what finds no room there follows it in turn."""
_WORDS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Formats of elements, by their size in bytes."""
_FIRST = (1 << 20) // ALIGNMENT
_SCATTERED, _TRIES = 256, 16


def _reserve(nbytes: int) -> tuple[mmap.mmap, int]:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    try:
        area = mmap.mmap(-1, nbytes, flags=flags)
    except OSError as e:
        raise DeviceError(
            f"{nbytes >> 30} GiB of address space cannot be reserved for the emulator "
            f"({e.strerror}): raise `ulimit -v` or set vm.overcommit_memory to 0 or 1"
        ) from e
    return area, ctypes.addressof(ctypes.c_char.from_buffer(area))


class DeviceMemory:
    """The arena, its allocations and what is known of their contents."""

    def __init__(self, limit_bytes: int, address_seed: int | None = None) -> None:
        """address_seed: two memories of the same one place equal allocations alike; None: one after
        the other."""
        self.limit_bytes = limit_bytes
        self._draw = None if address_seed is None else random.Random(address_seed)
        self.used_bytes = 0
        self._area, self.base = _reserve(ARENA_BYTES)
        self._shadow_area, self.shadow = _reserve(ARENA_BYTES)
        self._touched_area, self.touched = _reserve(ARENA_BYTES // 128)
        self.records: list[Alloc] = []
        self._starts: list[int] = []

    # --- allocations ----------------------------------------------------------------------------

    def alloc(self, nbytes: int, *, read_only: bool = False, zeroed: bool = False) -> int:
        """Address of `nbytes`, poisoned or zeroed (pages of the arena are zero when they are first
        touched, so that costs nothing). Raises CandidateFault(memory_limit) over the limit."""
        if nbytes < 0 or self.used_bytes + nbytes > self.limit_bytes:
            raise CandidateFault(
                Status.MEMORY_LIMIT,
                f"the kernel's host code asked for {nbytes} bytes of device memory with "
                f"{self.used_bytes} in use; the limit is {self.limit_bytes}",
            )
        room = (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        address = self._anywhere(room) or self._after_the_last(room)
        self.used_bytes += nbytes
        self._set(address - ALIGNMENT, _GUARD_BYTE, ALIGNMENT)
        self._set(address + nbytes, _GUARD_BYTE, room - nbytes + ALIGNMENT)
        written = WRITE_ALL if zeroed else WRITE_NONE
        if not zeroed:
            self._set(address, _POISON_BYTE, nbytes)
        at = bisect.bisect(self._starts, address)
        self.records.insert(
            at, Alloc(lo=address, size=nbytes, read_only=int(read_only), written=written)
        )
        self._starts.insert(at, address)
        return address

    def _anywhere(self, room: int) -> int | None:
        """A place for so many bytes between the allocations that there are; None after many of
        them, each of which takes pages of its own."""
        if self._draw is None or len(self._starts) >= _SCATTERED:
            return None
        for _ in range(_TRIES):
            address = BASE_GLOBAL + ALIGNMENT * self._draw.randrange(
                _FIRST, max(_FIRST + 1, (_SCATTER_BYTES - room) // ALIGNMENT)
            )
            at = bisect.bisect(self._starts, address)
            before = self.records[at - 1] if at else None
            free = before is None or before.lo + before.size + 2 * ALIGNMENT <= address
            if free and (at == len(self._starts) or address + room + ALIGNMENT < self._starts[at]):
                return address
        return None

    def _after_the_last(self, room: int) -> int:
        first = BASE_GLOBAL + ALIGNMENT * _FIRST
        address = first if self._draw is None else BASE_GLOBAL + _SCATTER_BYTES
        if self.records:
            last = self.records[-1]
            end = last.lo + last.size + ALIGNMENT - 1
            address = max(address, end // ALIGNMENT * ALIGNMENT + ALIGNMENT)
        if address + room + ALIGNMENT > BASE_GLOBAL + ARENA_BYTES:
            raise CandidateFault(
                Status.MEMORY_LIMIT,
                f"the host code allocated more than {ARENA_BYTES >> 30} GiB in total",
            )
        return address

    def free(self, address: int) -> None:
        record = self._exact(address)
        record.freed = 1
        self.used_bytes -= record.size
        first = (address - BASE_GLOBAL + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        last = (address - BASE_GLOBAL + record.size) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._area.madvise(mmap.MADV_DONTNEED, first, last - first)

    def poison(self, address: int) -> None:
        record = self._exact(address)
        self._set(address, _POISON_BYTE, record.size)
        record.written = WRITE_NONE

    def _exact(self, address: int) -> Alloc:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or self._starts[at] != address or self.records[at].freed:
            raise CandidateFault(
                Status.RUNTIME_ERROR, f"{address:#x} is not the start of a device allocation"
            )
        return self.records[at]

    @staticmethod
    def may_hold(address: int) -> bool:
        """Whether any device memory could lie at this address."""
        return BASE_GLOBAL <= address < BASE_GLOBAL + ARENA_BYTES

    def find(self, address: int) -> Alloc | None:
        """The allocation at or below `address`, freed ones too; None below the first."""
        at = bisect.bisect_right(self._starts, address) - 1
        return self.records[at] if at >= 0 else None

    def _range(self, address: int, nbytes: int, what: str) -> Alloc:
        record = self.find(address)
        if (
            record is None
            or record.freed
            or nbytes < 0
            or address + nbytes > record.lo + record.size
        ):
            raise CandidateFault(
                Status.RUNTIME_ERROR,
                f"{what} of {nbytes} bytes at {address:#x} is outside every device allocation",
            )
        return record

    # --- contents -------------------------------------------------------------------------------

    def pointer(self, address: int) -> int:
        """Where an address lies in this process."""
        return self.base + (address - BASE_GLOBAL)

    def _set(self, address: int, value: int, nbytes: int) -> None:
        ctypes.memset(self.pointer(address), value, nbytes)

    def upload(self, address: int, data: bytes | memoryview) -> None:
        record = self._range(address, len(data), "a copy to the device")
        at = address - BASE_GLOBAL
        self._area[at : at + len(data)] = data
        self._mark(record, address, len(data))

    def download(self, address: int, nbytes: int) -> bytes:
        self._range(address, nbytes, "a copy from the device")
        at = address - BASE_GLOBAL
        return self._area[at : at + nbytes]

    def text(self, address: int, room: int = 200) -> str:
        """The NUL-terminated text at `address`, cut at `room` bytes; "" where there is none."""
        record = self.find(address)
        if record is None or address >= record.lo + record.size:
            return ""
        at = address - BASE_GLOBAL
        data = self._area[at : at + min(room, record.lo + record.size - address)]
        return data.split(b"\0", 1)[0].decode("utf-8", "replace")

    def fill(self, address: int, value: int, nbytes: int) -> None:
        record = self._range(address, nbytes, "a memset")
        self._set(address, value & 0xFF, nbytes)
        self._mark(record, address, nbytes)

    def copy(
        self, destination: int, source: int, nbytes: int, layout: Layout | None = None
    ) -> None:
        if layout is not None and nbytes:
            return self._gather(Copy(destination, source, nbytes, layout), layout)
        to = self._range(destination, nbytes, "the destination of a copy")
        of = self._range(source, nbytes, "the source of a copy")
        ctypes.memmove(self.pointer(destination), self.pointer(source), nbytes)
        if of.written == WRITE_ALL:
            self._mark(to, destination, nbytes)
            return
        self._settle(to)
        from_shadow = self.shadow + (source - BASE_GLOBAL)
        if of.written == WRITE_NONE:
            ctypes.memset(self.shadow + (destination - BASE_GLOBAL), 0, nbytes)
        else:
            ctypes.memmove(self.shadow + (destination - BASE_GLOBAL), from_shadow, nbytes)
        to.written = WRITE_SOME

    def _gather(self, copy: Copy, layout: Layout) -> None:
        """A copy of elements that lie apart."""
        written = self._range(copy.destination, copy.nbytes, "the destination of a copy")
        self._settle(written)
        self._settle(self._range(copy.source, copy.read_bytes, "the source of a copy"))
        written.written = WRITE_SOME
        itemsize, shape, strides = layout
        steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        long = max(range(len(shape)), key=lambda axis: shape[axis])
        count, stride, step = shape[long], strides[long], steps[long]
        others = [axis for axis in range(len(shape)) if axis != long]
        for area in (self._area, self._shadow_area):
            to, of = (
                memoryview(area)[at - BASE_GLOBAL :][:size].cast(_WORDS[itemsize])
                for at, size in ((copy.destination, copy.nbytes), (copy.source, copy.read_bytes))
            )
            for index in itertools.product(*(range(shape[axis]) for axis in others)):
                i = sum(n * steps[axis] for n, axis in zip(index, others, strict=True))
                j = sum(n * strides[axis] for n, axis in zip(index, others, strict=True))
                end = i + (count - 1) * step + 1
                if stride:
                    to[i:end:step] = of[j : j + (count - 1) * stride + 1 : stride]
                else:
                    to[i:end:step] = memoryview(bytes(of[j : j + 1]) * count).cast(_WORDS[itemsize])

    def _settle(self, record: Alloc) -> None:
        """Write the state of a whole allocation out to its shadow bytes."""
        if record.written != WRITE_SOME:
            value = 1 if record.written == WRITE_ALL else 0
            ctypes.memset(self.shadow + (record.lo - BASE_GLOBAL), value, record.size)

    def _mark(self, record: Alloc, address: int, nbytes: int) -> None:
        """`nbytes` at `address` have been written."""
        if record.written == WRITE_ALL:
            return
        if address == record.lo and nbytes == record.size:
            record.written = WRITE_ALL
            return
        self._settle(record)
        ctypes.memset(self.shadow + (address - BASE_GLOBAL), 1, nbytes)
        record.written = WRITE_SOME

    # --- launches -------------------------------------------------------------------------------

    def table(self, *, checked: bool, spared: Container[int] = ()) -> ctypes.Array[Alloc]:
        """All allocations in ascending order, for one launch. spared: addresses of those that it
        does not store to, as far as is known: races are not looked for there."""
        for record in self.records:
            if checked and record.written == WRITE_NONE and not record.freed:
                self._settle(record)
            writable = not (record.freed or record.read_only)
            record.watched = checked and writable and record.lo not in spared
        return (Alloc * max(len(self.records), 1))(*self.records)

    def take_back(self, table: ctypes.Array[Alloc], *, checked: bool) -> None:
        """Learn what a launch wrote; without checks, all of an allocation that was stored to."""
        for record, seen in zip(self.records, table, strict=False):
            record.written, record.race = seen.written, seen.race
            record.grain, record.was_read = seen.grain, seen.was_read
            if seen.stored and not checked:
                record.written = WRITE_ALL

    def damage(self) -> str | None:
        """A sentence naming the first allocation whose guards were written."""
        expected = bytes([_GUARD_BYTE])
        for record in self.records:
            if record.freed:
                continue
            end = record.lo + record.size
            room = (record.size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
            for start, stop in ((record.lo - ALIGNMENT, record.lo),
                                (end, record.lo + room + ALIGNMENT)):  # fmt: skip
                found = self._area[start - BASE_GLOBAL : stop - BASE_GLOBAL]
                if found != expected * len(found):
                    return f"memory next to the allocation at {record.lo:#x} was overwritten"
        return None
