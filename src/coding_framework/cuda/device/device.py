"""What the judge asks of a device: one Protocol, two implementations (emulator, CUDA).

A device is a process of ours that owns the memory and runs only the candidate's device code. It is
disposable: one candidate, then closed. Addresses are never mapped in the candidate's host process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from coding_framework.cuda.device.work_meter import WorkMeter
from coding_framework.cuda.plan.launch_plan import Launch, LaunchReport, Layout, ModuleInfo
from coding_framework.types import BackendName

Asked = tuple[Any, ...]
"""The name of a method of `Device` and its arguments."""


class Device(Protocol):
    """Raises CandidateFault for what the candidate did: illegal address, trap, endless
    kernel, too much memory, an opcode that is not supported. Raises DeviceError for our own faults.
    """

    backend: BackendName
    meter: WorkMeter | None
    """Counts what the candidate has the device do; None: nobody counts."""
    name: str
    """As a receipt names it: "NVIDIA H200", or "emulator of NVIDIA H200"."""

    def load(self, build: Path) -> ModuleInfo:
        """Load the device code of a build folder (CompilationResult.binary_path)."""
        ...

    def alloc(self, nbytes: int) -> int:
        """Address of `nbytes` of memory, 256-byte aligned, guarded on both sides; contents are
        marked uninitialised and poisoned with 0xFF bytes (a NaN in every float format)."""
        ...

    def free(self, address: int) -> None:
        """Later accesses to the block are illegal."""
        ...

    def poison(self, address: int) -> None:
        """Back to the state after `alloc`."""
        ...

    def upload(self, address: int, data: bytes | memoryview) -> None: ...

    def download(self, address: int, nbytes: int) -> bytes: ...

    def copy(
        self, destination: int, source: int, nbytes: int, layout: Layout | None = None
    ) -> None:
        """layout: of what is read; its elements come one after the other."""
        ...

    def fill(self, address: int, value: int, nbytes: int) -> None: ...

    def launch(self, launch: Launch, *, checks: bool = False) -> LaunchReport:
        """Run one launch to its end. checks: also uninitialised reads and races (slower)."""
        ...

    def check_guards(self) -> str | None:
        """A sentence if memory outside the allocations was written; None if all is intact."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class AnswersTogether(Protocol):
    """A device that carries out several operations by one message."""

    def together(self, asked: Sequence[Asked]) -> list[Any]:
        """What each of them gives, in order. After a fault none of the others is carried out."""
        ...


def carry_out(device: Device, asked: Sequence[Asked]) -> list[Any]:
    """What each of these operations gives, in order: `alloc`, `poison`, `upload`, `download`,
    `fill`, `check_guards` and `count_events`. What is downloaded may be a view of bytes that can be
    written to. Raises as the first of them that fails does."""
    if not asked:
        return []
    if _is(type(device), AnswersTogether):
        return cast(AnswersTogether, device).together(asked)
    return [getattr(device, name)(*arguments) for name, *arguments in asked]


@cache
def _is(kind: type, protocol: type) -> bool:
    """Kept: to look through a protocol takes as long as a small operation of a device."""
    return issubclass(kind, protocol)


@runtime_checkable
class CountsEvents(Protocol):
    """A device that may be told not to count what nobody will look at: its launches are quicker."""

    def count_events(self, wanted: bool) -> None:
        """From here on; only instructions are counted otherwise, and no time is modelled."""
        ...


@runtime_checkable
class WatchesStreams(Protocol):
    """A device that finds the accesses of a plan's operations which nothing orders."""

    def watch_streams(self) -> None:
        """A plan begins; operations have numbers from here on."""
        ...

    def expect(self, number: int, unordered: Sequence[int]) -> None:
        """The operation that comes next, and the earlier ones that nothing orders before it. A
        checked launch then notes races with those (`stream_race`)."""
        ...

    def touch(self, address: int, nbytes: int, writes: bool) -> int | None:
        """The operation reads or writes these bytes outside of a launch; the number of an earlier
        operation that it races with."""
        ...

    def end_watch(self) -> None:
        """The plan ends."""
        ...
