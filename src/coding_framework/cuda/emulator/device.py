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

from coding_framework.cuda.device.remote import RemoteDevice
from coding_framework.cuda.emulator import timing_model
from coding_framework.cuda.emulator.settings import BlockOrder, EmulatorSettings
from coding_framework.errors import DeviceError
from coding_framework.types import BackendName

_ANSWER_S = 1800.0
"""Wall backstop on one request, far above the limits on instructions and CPU time: a device that is
silent so long hangs, which is our fault."""


class ForkServer:
    """This process's handle on its fork server. Safe to use from several threads."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coding_framework.cuda.emulator.fork_server",
                 str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )  # fmt: skip
        self.owner = os.getpid()
        self.control = ours
        self.lock = threading.Lock()
        answer = self._receive()
        if "error" in answer:
            raise DeviceError(f"the emulator cannot start: {answer['error']}")

    def _receive(self) -> dict[str, Any]:
        message = self.control.recv(65536)
        if not message:
            raise DeviceError(
                f"the emulator's fork server ended (exit {self.process.wait()}): run the command "
                "again, or `cuda-rl doctor` if it stays"
            )
        answer: dict[str, Any] = json.loads(message)
        return answer

    def fork(self, settings: EmulatorSettings) -> tuple[socket.socket, int]:
        """A connection to a fresh device process, and its number."""
        ours, theirs = socket.socketpair()
        request = {"operation": "fork", "settings": dataclasses.asdict(settings)}
        with theirs, self.lock:
            socket.send_fds(self.control, [json.dumps(request).encode()], [theirs.fileno()])
            return ours, int(self._receive()["pid"])

    def end(self, pid: int) -> int | None:
        """Kill a device process; its exit code (negative: a signal), None where it is unknown."""
        with self.lock:
            self.control.send(json.dumps({"operation": "end", "pid": pid}).encode())
            code = self._receive()["code"]
            return None if code is None else int(code)


_current: ForkServer | None = None
_current_lock = threading.Lock()


def current_fork_server() -> ForkServer:
    """The fork server of this process: a forked child starts its own."""
    global _current
    with _current_lock:
        if _current is None or _current.owner != os.getpid() or _current.process.poll() is not None:
            _current = ForkServer()
        return _current


class EmulatorDevice(RemoteDevice):
    """An emulated GPU. See `cuda/device/device.py` for what each method promises.

    settings: limits and the GPU to model; block_order: short for the setting of that name.
    """

    backend: BackendName = "emulator"
    _what = "the emulator"

    def __init__(
        self,
        settings: EmulatorSettings | None = None,
        *,
        block_order: BlockOrder | None = None,
    ) -> None:
        chosen = settings or EmulatorSettings()
        if block_order is not None:
            chosen = dataclasses.replace(chosen, block_order=block_order)
        self.settings = chosen
        self.name = timing_model.gpu(chosen.gpu).name
        self._server = current_fork_server()
        self._connection, self._pid = self._server.fork(chosen)
        self._connection.settimeout(_ANSWER_S)
        self._closed = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._connection.close()
        if self._server.owner == os.getpid() and self._server.process.poll() is None:
            with contextlib.suppress(OSError, DeviceError):
                self._end_process()

    def watch_streams(self) -> None:
        self._ask("watch_streams")

    def expect(self, number: int, unordered: Sequence[int]) -> None:
        self._ask("expect", number, list(unordered))

    def touch(self, address: int, nbytes: int, writes: bool) -> int | None:
        found = self._ask("touch", address, nbytes, writes)[0]
        return None if found is None else int(found)

    def end_watch(self) -> None:
        self._ask("end_watch")

    def _end_process(self) -> int | None:
        return self._server.end(self._pid)
