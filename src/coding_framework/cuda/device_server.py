"""The device server: `python -m coding_framework.cuda.device_server`, one for each judge.

It holds the emulator loaded and nothing else: no torch, no reference, no seed. For each device that
the judge asks for it forks a child, which serves that one device on a socket of its own and ends
with it. A child that dies takes no other candidate with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coding_framework.cuda.device import Device
from coding_framework.cuda.device_wire import (
    decode_launch,
    encode_module,
    encode_report,
    receive_message,
    send_message,
)
from coding_framework.cuda.plan import CandidateFault
from coding_framework.errors import DeviceError

_PR_SET_PDEATHSIG = 1
Answer = tuple[dict[str, Any], bytes]


def main() -> None:
    """Fork a device for every socket that comes in; end when the judge does."""
    from coding_framework.cuda.emulator.device import EmulatorDevice

    control = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    EmulatorDevice().close()  # builds and loads the interpreter before the first fork
    control.sendall(b"+")
    while True:
        _, handles, _, _ = socket.recv_fds(control, 1, 1)
        if not handles:
            return
        if os.fork() == 0:
            _end_with_parent()
            control.close()
            os.close(0)
            with socket.socket(fileno=handles[0]) as channel:
                _serve(channel, EmulatorDevice())
            os._exit(0)
        os.close(handles[0])


def _end_with_parent() -> None:
    """A device in the middle of a kernel is killed when the server ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve(channel: socket.socket, device: Device) -> None:
    """Carry out requests until the judge hangs up."""
    send_message(channel, {"name": device.name}, b"")
    while (message := receive_message(channel)) is not None:
        head, tail = message
        try:
            answer, data = _OPERATIONS[head["op"]](device, head, tail)
        except CandidateFault as fault:
            answer, data = {"fault": fault.status.value, "reason": fault.reason}, b""
        except DeviceError as e:
            answer, data = {"error": str(e)}, b""
        except Exception as e:
            answer, data = {"error": f"{type(e).__name__}: {e}"}, b""
        send_message(channel, answer, data)


def _load(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    return {"module": encode_module(device.load(Path(head["build"])))}, b""


def _alloc(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    return {"address": device.alloc(head["nbytes"])}, b""


def _free(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    device.free(head["address"])
    return {}, b""


def _poison(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    device.poison(head["address"])
    return {}, b""


def _upload(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    device.upload(head["address"], tail)
    return {}, b""


def _download(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    return {}, device.download(head["address"], head["nbytes"])


def _copy(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    device.copy(head["destination"], head["source"], head["nbytes"])
    return {}, b""


def _fill(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    device.fill(head["address"], head["value"], head["nbytes"])
    return {}, b""


def _launch(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    report = device.launch(decode_launch(head["launch"], tail), checks=head["checks"])
    return {"report": encode_report(report)}, b""


def _check_guards(device: Device, head: dict[str, Any], tail: bytes) -> Answer:
    return {"guard": device.check_guards()}, b""


_OPERATIONS: dict[str, Callable[[Device, dict[str, Any], bytes], Answer]] = {
    "load": _load,
    "alloc": _alloc,
    "free": _free,
    "poison": _poison,
    "upload": _upload,
    "download": _download,
    "copy": _copy,
    "fill": _fill,
    "launch": _launch,
    "check_guards": _check_guards,
}

if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, KeyboardInterrupt):
        sys.exit(0)
