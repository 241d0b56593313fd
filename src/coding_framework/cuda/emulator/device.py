"""`EmulatorDevice`: the `Device` of machines without a GPU, in a disposable process of its own.

Guaranteed: the process dies with the device's `close`, with this process and with a SIGKILL of
either; a candidate's fault leaves the device usable for `download` but its memory as the kernel
left it. The first device of a process costs a fraction of a second (the fork server starts, and on
a new machine gcc builds the interpreter), every later one a few milliseconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coding_framework.cuda.device.device import Asked
from coding_framework.cuda.device.remote import RemoteDevice, our_environment
from coding_framework.cuda.emulator import timing_model
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.plan.launch_plan import ModuleInfo
from coding_framework.errors import DeviceError
from coding_framework.types import EMULATOR_OF, BackendName

_ANSWER_S = 1800.0
"""Wall backstop on one request, far above the limits on instructions and CPU time: a device that is
silent so long hangs, which is our fault."""
_AT_ONCE_BYTES = 64 << 20
"""Of one message that asks for several operations."""


class ForkServer:
    """A handle on a fork server. Safe to use from several threads."""

    control: socket.socket
    owner: int
    """The process that may use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    @property
    def lives(self) -> bool:
        """Whether it can be asked."""
        raise NotImplementedError

    def _how_ended(self) -> str:
        raise NotImplementedError

    def _receive(self) -> dict[str, Any]:
        message = self.control.recv(65536)
        if not message:
            raise DeviceError(self._how_ended())
        answer: dict[str, Any] = json.loads(message)
        return answer

    def start(self, request: dict[str, Any], theirs: socket.socket) -> int:
        """Fork a process that talks through `theirs`; its number."""
        with self.lock:
            try:
                socket.send_fds(self.control, [json.dumps(request).encode()], [theirs.fileno()])
            except OSError as e:
                raise DeviceError(self._how_ended()) from e
            return int(self._receive()["pid"])

    def fork(self, settings: EmulatorSettings) -> tuple[socket.socket, int]:
        """A connection to a fresh device process, and its number."""
        ours, theirs = socket.socketpair()
        with theirs:
            request = {"operation": "fork", "settings": dataclasses.asdict(settings)}
            return ours, self.start(request, theirs)

    def end(self, pid: int) -> int | None:
        """Kill a process that it forked; its exit code (negative: a signal), None where it is
        unknown."""
        with self.lock:
            self.control.send(json.dumps({"operation": "end", "pid": pid}).encode())
            code = self._receive()["code"]
            return None if code is None else int(code)

    def release(self) -> None:
        """A device of it is closed."""


class OwnForkServer(ForkServer):
    """The fork server of this process."""

    def __init__(self) -> None:
        super().__init__()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coding_framework.cuda.emulator.fork_server",
                 str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, env=our_environment(),
            )  # fmt: skip
        self.owner = os.getpid()
        self.control = ours
        self._reader: _Reader | None = None
        self._reader_lock = threading.Lock()
        answer = self._receive()
        if "error" in answer:
            raise DeviceError(f"the emulator cannot start: {answer['error']}")

    @property
    def lives(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def _how_ended(self) -> str:
        return (
            f"the emulator's fork server ended (exit {self.process.wait()}): run the command "
            "again, or `cuda-rl doctor` if it stays"
        )

    def reader(self, build: Path) -> _Reader:
        """The fork server of a build, for one device, which releases it. One is kept."""
        with self._reader_lock:
            kept = self._reader
            if kept is None or kept.build != build or not kept.lives:
                if kept is not None:
                    kept.retire()
                kept = self._reader = _Reader(self, build)
            kept.users += 1
            return kept


class _Reader(ForkServer):
    """The fork server of a build: its devices need not read the device code."""

    def __init__(self, parent: OwnForkServer, build: Path) -> None:
        super().__init__()
        self.build, self.owner, self.users = build, parent.owner, 0
        self._parent, self._ended, self._retired = parent, False, False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._pid = parent.start({"operation": "read", "build": str(build)}, theirs)
        self.work_s = float(self._receive()["work_s"])
        """Processor time of the reading, until somebody counted it."""

    @property
    def lives(self) -> bool:
        return not self._ended and self._parent.lives

    def _how_ended(self) -> str:
        self._ended = True
        return "the process that read the device code ended: judge the candidate again"

    def retire(self) -> None:
        """End it when its last device is closed."""
        self._retired = True
        self._end_unused()

    def release(self) -> None:
        with self._parent._reader_lock:
            self.users -= 1
            self._end_unused()

    def _end_unused(self) -> None:
        if not self._retired or self.users:
            return
        self.control.close()
        if self._parent.lives:
            with contextlib.suppress(OSError, DeviceError):
                self._parent.end(self._pid)


_current: OwnForkServer | None = None
_current_lock = threading.Lock()


def current_fork_server() -> OwnForkServer:
    """The fork server of this process: a forked child starts its own."""
    global _current
    with _current_lock:
        if _current is None or not _current.lives:
            _current = OwnForkServer()
        return _current


class EmulatorDevice(RemoteDevice):
    """An emulated GPU. See `cuda/device/device.py` for what each method promises.

    settings: limits and the GPU to model. Its process starts with the first thing that is asked of
    it.
    """

    backend: BackendName = "emulator"
    _what = "the emulator"

    def __init__(self, settings: EmulatorSettings | None = None) -> None:
        self.settings = settings or EmulatorSettings()
        self.name = EMULATOR_OF + timing_model.gpu(self.settings.gpu).name
        self._server: ForkServer | None = None
        self._closed = False

    def _start(self, server: ForkServer) -> None:
        self._server = server
        self._connection, self._pid = server.fork(self.settings)
        self._connection.settimeout(_ANSWER_S)

    def load(self, build: Path) -> ModuleInfo:
        if self._server is None and not self._closed:
            reader = current_fork_server().reader(Path(build).resolve())
            try:
                self._start(reader)
            except (OSError, DeviceError):
                reader.release()
                raise
            work_s, reader.work_s = reader.work_s, 0.0
            if self.meter is not None:
                self.meter.spend(work_s, 0)
        return super().load(build)

    def _ask(self, operation: str, *arguments: Any) -> Any:
        if self._server is None and not self._closed:
            self._start(current_fork_server())
        return super()._ask(operation, *arguments)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._server is None:
            return
        self._connection.close()
        if self._server.lives:
            with contextlib.suppress(OSError, DeviceError):
                self._end_process()
        self._server.release()

    def together(self, asked: Sequence[Asked]) -> list[Any]:
        """See `AnswersTogether`. Above some bytes by several messages."""
        given: list[Any] = []
        part: list[Asked] = []
        size = 0
        for one in asked:
            nbytes = _carried(one)
            if part and size + nbytes > _AT_ONCE_BYTES:
                given += self._ask("together", part)
                part, size = [], 0
            part.append(one)
            size += nbytes
        return given + list(self._ask("together", part))

    def count_events(self, wanted: bool) -> None:
        self._ask("count_events", wanted)

    def watch_streams(self) -> None:
        self._ask("watch_streams")

    def expect(self, number: int, unordered: Sequence[int]) -> None:
        self._ask("expect", number, list(unordered))

    def touch(self, address: int, nbytes: int, writes: bool) -> int | None:
        found: int | None = self._ask("touch", address, nbytes, writes)
        return found

    def end_watch(self) -> None:
        self._ask("end_watch")

    def _give_up(self) -> int | None:
        code = super()._give_up()
        assert self._server is not None
        self._server.release()
        return code

    def _end_process(self) -> int | None:
        assert self._server is not None
        return self._server.end(self._pid)


def _carried(asked: Asked) -> int:
    """Bytes that an operation takes along, or brings back."""
    match asked:
        case ("upload", _, data):
            return memoryview(data).nbytes
        case ("download", _, nbytes):
            return int(nbytes)
    return 0
