"""Devices in processes of their own: what `Device` asks is sent to a child of the device server.

Guaranteed: device code never runs in the judge's address space, where references lie; a device
process that dies, hangs or answers nonsense is DeviceError (ours, retryable), never a verdict, and
leaves the next device untouched; none outlives its judge.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal

from coding_framework.cuda.device_wire import (
    decode_module,
    decode_report,
    encode_launch,
    receive_message,
    send_message,
)
from coding_framework.cuda.plan import CandidateFault, Launch, LaunchReport, ModuleInfo
from coding_framework.errors import DeviceError
from coding_framework.types import Status

_START_S = 300.0
"""The first start on a machine compiles the interpreter."""
_ANSWER_S = 900.0
"""Backstop; an endless kernel ends by its instruction budget long before."""


class DeviceServer:
    """Starts device processes. Make one a judge; `close` ends it and every device with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "coding_framework.cuda.device_server"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
            )
        self._ready = False

    def open(self) -> ProcessDevice:
        """A fresh device in a fresh process. Raises DeviceError."""
        with self._lock:
            try:
                self._await_ready()
                ours, theirs = socket.socketpair()
                with theirs:
                    socket.send_fds(self._control, [b"d"], [theirs.fileno()])
            except OSError as e:
                raise DeviceError(f"the device server is gone ({e}): judge again") from e
        return ProcessDevice(ours)

    def close(self) -> None:
        self._control.close()
        try:
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_ready(self) -> None:
        if self._ready:
            return
        self._control.settimeout(_START_S)
        try:
            said = self._control.recv(1)
        except TimeoutError:
            said = b""
        if said != b"+":
            raise DeviceError(
                "the emulator's process did not start: run `cuda-rl doctor` to see why"
            )
        self._ready = True


class ProcessDevice:
    """A `Device` whose memory and kernels live in a process of its own."""

    backend: Literal["emulator", "cuda"] = "emulator"

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._channel.settimeout(_ANSWER_S)
        self.name = str(self._receive()[0]["name"])

    def load(self, build: Path) -> ModuleInfo:
        return decode_module(self._ask("load", build=str(build))[0]["module"])

    def alloc(self, nbytes: int) -> int:
        return int(self._ask("alloc", nbytes=nbytes)[0]["address"])

    def free(self, address: int) -> None:
        self._ask("free", address=address)

    def poison(self, address: int) -> None:
        self._ask("poison", address=address)

    def upload(self, address: int, data: bytes | memoryview) -> None:
        self._ask("upload", data, address=address)

    def download(self, address: int, nbytes: int) -> bytes:
        data = self._ask("download", address=address, nbytes=nbytes)[1]
        if len(data) != nbytes:
            raise DeviceError(f"a device process sent {len(data)} bytes for {nbytes}: judge again")
        return data

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self._ask("copy", destination=destination, source=source, nbytes=nbytes)

    def fill(self, address: int, value: int, nbytes: int) -> None:
        self._ask("fill", address=address, value=value, nbytes=nbytes)

    def launch(self, launch: Launch, *, checks: bool = False) -> LaunchReport:
        answer = self._ask("launch", launch.params, launch=encode_launch(launch), checks=checks)
        return decode_report(answer[0]["report"])

    def check_guards(self) -> str | None:
        guard = self._ask("check_guards")[0]["guard"]
        return None if guard is None else str(guard)

    def close(self) -> None:
        self._channel.close()

    def _ask(
        self, op: str, tail: bytes | memoryview = b"", **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        try:
            send_message(self._channel, {"op": op, **fields}, tail)
        except OSError as e:
            raise DeviceError(f"a device process died before {op}: judge again") from e
        head, data = self._receive()
        if "fault" in head:
            raise CandidateFault(Status(head["fault"]), str(head["reason"]))
        if "error" in head:
            raise DeviceError(f"the device failed in {op}: {head['error']}")
        return head, data

    def _receive(self) -> tuple[dict[str, Any], bytes]:
        try:
            message = receive_message(self._channel)
        except TimeoutError as e:
            raise DeviceError(f"a device process gave no answer in {_ANSWER_S:.0f} s") from e
        except (OSError, ValueError) as e:
            raise DeviceError(f"a device process broke off ({e}): judge again") from e
        if message is None:
            raise DeviceError("a device process died: judge again")
        return message
