"""The asking half of a device process: a `Device` whose work is done at the other end of a socket.

What both devices share. A subclass starts its process, and says how it ends one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

from coding_framework.cuda.device import wire
from coding_framework.cuda.device.work_meter import WorkMeter
from coding_framework.cuda.plan.launch_plan import (
    CandidateFault,
    Launch,
    LaunchReport,
    Layout,
    ModuleInfo,
)
from coding_framework.errors import DeviceError, DeviceFullError
from coding_framework.types import BackendName, Status

_MAX_ANSWER = 16 << 30
_SIZE_AT = {"alloc": 0, "download": 1, "copy": 2, "fill": 2}
"""Which argument of an operation says how many bytes it moves."""
_COUNTED = frozenset(
    {"load", "free", "poison", "upload", "launch", "check_guards", "together", *_SIZE_AT}
)
"""Operations that a candidate's plan is made of, or that take longer for what it has."""


class RemoteDevice(ABC):
    """See `cuda/device/device.py` for what each method promises. One thread at a time."""

    backend: BackendName
    name: str
    meter: WorkMeter | None = None
    """Counts what the candidate has the device do; None: nobody counts."""
    _connection: socket.socket
    _closed: bool = True
    _what: str
    """What the device is called in messages, e.g. "the emulator"."""

    @abstractmethod
    def close(self) -> None:
        """Give the device up; the process ends, or is made ready for another candidate."""

    @abstractmethod
    def _end_process(self) -> int | None:
        """End a process that broke the connection; its exit code where it is known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    # --- the Device protocol --------------------------------------------------------------------

    def load(self, build: Path) -> ModuleInfo:
        found: ModuleInfo = self._ask("load", str(Path(build).resolve()))
        return found

    def alloc(self, nbytes: int) -> int:
        return int(self._ask("alloc", nbytes))

    def free(self, address: int) -> None:
        self._ask("free", address)

    def poison(self, address: int) -> None:
        self._ask("poison", address)

    def upload(self, address: int, data: bytes | memoryview) -> None:
        self._ask("upload", address, data)

    def download(self, address: int, nbytes: int) -> bytes:
        return bytes(self._ask("download", address, nbytes))

    def copy(
        self, destination: int, source: int, nbytes: int, layout: Layout | None = None
    ) -> None:
        self._ask("copy", destination, source, nbytes, layout)

    def fill(self, address: int, value: int, nbytes: int) -> None:
        self._ask("fill", address, value, nbytes)

    def launch(self, launch: Launch, *, checks: bool = False) -> LaunchReport:
        report: LaunchReport = self._ask("launch", launch, checks)
        return report

    def check_guards(self) -> str | None:
        found: str | None = self._ask("check_guards")
        return found

    # --- the wire -------------------------------------------------------------------------------

    def _ask(self, operation: str, *arguments: Any) -> Any:
        """What comes of an operation: JSON, records and views of bytes (`wire.py`)."""
        if self._closed:
            raise DeviceError(f"{self._what} is closed: make a new one")
        started = time.thread_time()
        try:
            wire.send(self._connection, (operation, *arguments))
            answer = wire.receive(self._connection, _MAX_ANSWER)
        except TimeoutError as e:
            raise self._silent(operation) from e
        except (OSError, EOFError) as e:
            raise self._died(operation) from e
        if answer.get("broken"):
            self._give_up()
        if "status" in answer:
            raise CandidateFault(
                Status(answer["status"]), answer["reason"], output=answer.get("output", "")
            )
        if "error" in answer:
            kind = DeviceFullError if answer.get("full") else DeviceError
            raise kind(f"{self._what} failed in {operation}: {answer['error']}")
        if self.meter is not None and operation in _COUNTED:
            ours = time.thread_time() - started
            self.meter.spend(answer["work_s"] + ours, _moved(operation, arguments))
        return answer["result"]

    def _silent(self, operation: str) -> Exception:
        """The error for a device that does not answer in time."""
        return self._died(operation)

    def _died(self, operation: str) -> DeviceError:
        """The error for a device process that is gone; it is never used again."""
        code = self._give_up()
        return DeviceError(
            f"the process of {self._what} ended in {operation} (exit {code}): judge the candidate "
            "again"
        )

    def _give_up(self) -> int | None:
        """End the process, and use the device no more."""
        self._closed = True
        self._connection.close()
        with contextlib.suppress(OSError, DeviceError):
            return self._end_process()
        return None


def our_environment() -> dict[str, str]:
    """Of a process that runs a module of this package, from wherever that was imported."""
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _moved(operation: str, arguments: tuple[Any, ...]) -> int:
    """Bytes that an operation moves or sets."""
    match operation:
        case "upload":
            return memoryview(arguments[1]).nbytes
        case "together":
            return sum(_moved(name, tuple(given)) for name, *given in arguments[0])
        case _:
            return int(arguments[_SIZE_AT[operation]]) if operation in _SIZE_AT else 0
