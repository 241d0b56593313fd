"""Finds the GPUs here, and shares each one between the processes that judge.

Each operation on a GPU holds its lock shared. A measurement holds the lock alone, so nothing of
ours runs beside what is timed. A gate keeps a measurement from waiting for ever: operations that
come after it wait behind it. Other measurements do not, as the GPU is quiet for them already. The
operating system frees the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coding_framework.cuda.toolchain.slots import slot, try_lock
from coding_framework.cuda.toolchain.tool_output import output_of
from coding_framework.errors import DeviceError
from coding_framework.paths import alone, cache_dir

_SEATS = 64
"""Device processes on one GPU, at most."""
_QUARANTINE_S = 600.0
ROOM_BYTES = 8 << 30
"""Of a GPU's memory: what a judge may hold, unless it works on tensors of billions of elements.
That is tensors of PyTorch's that wait, kept references, the exchange buffer, the candidate's arena
and two contexts, and its part of what references take on the way. With 20 judges on an H200, which
has 17 rooms, its memory was full now and then, for the minutes in which 10,000 kernels were judged
an hour instead of 28,000."""
_OF_A_ROOM = 0.8
"""Part of a room that work of several rooms may fill: judges that wait for theirs keep contexts and
a little memory meanwhile. Of nine judges on an H100 the one that worked on 54 GiB found too little
where seven rooms of nine were its own."""
_ROOM_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that the driver shows."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    driver: str


def gpus() -> tuple[Gpu, ...]:
    """The GPUs here that CUDA_VISIBLE_DEVICES lets us use; () where there is none."""
    return _visible(_all_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def gpus_here() -> str:
    """Kinds and drivers of these GPUs, in words: their times hold for no others."""
    return ", ".join(sorted({f"{gpu.name} {gpu.driver}" for gpu in gpus()}))


def _visible(found: tuple[Gpu, ...], allowed: str | None) -> tuple[Gpu, ...]:
    if allowed is None:
        return found
    names = [name.strip() for name in allowed.split(",")]
    return tuple(
        gpu
        for name in names
        for gpu in found
        if name and (name == str(gpu.index) or gpu.uuid.startswith(name))
    )


@lru_cache(maxsize=1)
def _all_gpus() -> tuple[Gpu, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = "--query-gpu=index,uuid,name,memory.total,driver_version"
    return parse_gpus(output_of(tool, query, "--format=csv,noheader,nounits"))


def parse_gpus(listing: str) -> tuple[Gpu, ...]:
    """GPUs from nvidia-smi's lines "index, uuid, name, MiB, driver"."""
    found = []
    for line in listing.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and re.fullmatch(r"\d+", parts[0]) and re.fullmatch(r"\d+", parts[3]):
            found.append(Gpu(int(parts[0]), parts[1], parts[2], int(parts[3]) << 20, parts[4]))
    return tuple(found)


class GpuLock:
    """The lock of one GPU, over all processes of this user. One thread at a time."""

    def __init__(self, uuid: str) -> None:
        folder = _folder(uuid)
        self._gate = _open(folder / "gate")
        self._lock = _open(folder / "lock")
        self._turns = folder / "turns"

    @contextmanager
    def turn(self, count: int) -> Iterator[None]:
        """While fewer than `count` others are in such a block. To be entered before `shared`."""
        with slot(self._turns, count):
            yield

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While others may work on the GPU too, and no measurement waits for it."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else of ours works on the GPU."""
        fcntl.flock(self._gate, fcntl.LOCK_SH)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def close(self) -> None:
        for descriptor in (self._gate, self._lock):
            with suppress(OSError):
                os.close(descriptor)


class GpuRooms:
    """The memory of one GPU in rooms of equal size, over all processes of this user: work at real
    size takes as many as it needs, and waits where others have them. One thread at a time."""

    def __init__(self, gpu: Gpu) -> None:
        self._folder = _folder(gpu.uuid)
        self.count = max(1, gpu.memory_bytes // ROOM_BYTES)

    def needed(self, nbytes: int) -> int:
        """Rooms for so much work: one at least, and never more than there are."""
        if nbytes <= ROOM_BYTES:
            return 1
        return min(self.count, math.ceil(nbytes / (_OF_A_ROOM * ROOM_BYTES)))

    def is_wanted(self) -> bool:
        """Whether somebody waits for rooms now."""
        return _is_locked(self._folder / "rooms_wanted")

    @contextmanager
    def take(self, count: int) -> Iterator[None]:
        """While so many rooms are held. Who comes later waits behind who needs many."""
        held: list[int] = []
        try:
            with alone(self._folder / "rooms"):
                held += self._free(count)
                if len(held) < count:
                    self._wait_for(count, held)
            yield
        finally:
            for handle in held:
                os.close(handle)

    def _wait_for(self, count: int, held: list[int]) -> None:
        with alone(self._folder / "rooms_wanted"):
            while len(held) < count:
                time.sleep(_ROOM_PAUSE_S)
                held += self._free(count - len(held))

    def _free(self, at_most: int) -> list[int]:
        """Handles of rooms that nobody has, which are ours now."""
        found: list[int] = []
        for number in range(self.count):
            if len(found) == at_most:
                break
            if (handle := try_lock(self._folder / f"room{number}")) is not None:
                found.append(handle)
        return found


class Seat:
    """A place on the GPU with the fewest device processes. Close it when the process has ended."""

    def __init__(self, candidates: tuple[Gpu, ...] | None = None) -> None:
        """Raises DeviceError where no GPU can be used."""
        self.gpu, self._handle = _take_seat(candidates if candidates is not None else usable())

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._handle)


def usable() -> tuple[Gpu, ...]:
    """GPUs that are not in quarantine. Raises DeviceError where there is none."""
    found = gpus()
    if not found:
        raise DeviceError("no NVIDIA GPU is visible here: use --backend emulator")
    free = tuple(gpu for gpu in found if not in_quarantine(gpu))
    if not free:
        why = "; ".join(f"{gpu.uuid}: {_mark(gpu).read_text()}" for gpu in found)
        marks = " ".join(str(_mark(gpu)) for gpu in found)
        raise DeviceError(
            f"no GPU answers, so none gets work for {_QUARANTINE_S / 60:.0f} minutes ({why}): look "
            f"at nvidia-smi; to try at once, `rm {marks}`"
        )
    return free


def seats_taken(gpu: Gpu) -> int:
    """Device processes on a GPU, of this user and by seats that are locked now."""
    folder = _folder(gpu.uuid)
    return sum(_is_locked(folder / f"seat{number}") for number in range(_SEATS))


def quarantine(gpu: Gpu, why: str) -> None:
    """Give this GPU no work for a while: a process on it did not come up, or cannot be ended."""
    _mark(gpu).write_text(why)


def _take_seat(candidates: tuple[Gpu, ...]) -> tuple[Gpu, int]:
    for number in range(_SEATS):
        for gpu in candidates:
            handle = try_lock(_folder(gpu.uuid) / f"seat{number}")
            if handle is not None:
                return gpu, handle
    raise DeviceError(f"{_SEATS} processes use each GPU already: judge fewer kernels at once")


def in_quarantine(gpu: Gpu) -> bool:
    """Whether a GPU gets no work now."""
    try:
        return time.time() - _mark(gpu).stat().st_mtime < _QUARANTINE_S
    except OSError:
        return False


def _mark(gpu: Gpu) -> Path:
    return _folder(gpu.uuid) / "quarantine"


def _folder(uuid: str) -> Path:
    folder = cache_dir() / "gpus" / uuid
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_locked(path: Path) -> bool:
    handle = try_lock(path)
    if handle is not None:
        os.close(handle)
    return handle is None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
