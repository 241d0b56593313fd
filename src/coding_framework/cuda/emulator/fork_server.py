"""The fork server of emulated devices: library and parser loaded, a device is one fork away.

For a build there is another one, forked from it: that has read the device code, which its devices
need not do again. It has carried out none of it.

Started by `device.py` as `python -m coding_framework.cuda.emulator.fork_server FD`. It lives as
long as the process that started it: it ends when its control socket closes or its parent changes,
and the kernel kills every device with it (PR_SET_PDEATHSIG), so nothing is left behind a SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from coding_framework.cuda.device.server import Operation, serve
from coding_framework.cuda.emulator import timing_model
from coding_framework.cuda.emulator.library import load
from coding_framework.cuda.emulator.machine import Machine, prepare
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.errors import DeviceError

_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl
_PARENT_CHECK_S = 1.0


def main() -> None:
    """Serve fork requests on the control socket whose descriptor is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        load()
        timing_model.gpus()
    except Exception as e:  # told to the process that started us, unless that is gone too
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            control.send(json.dumps({"error": str(e)}).encode())
        return
    _serve(control, int(sys.argv[2]), {})


def _serve(control: socket.socket, parent: int, greeting: dict[str, Any]) -> None:
    """Fork devices as asked, until nobody asks any more. parent: the process that started us."""
    gc.collect()
    gc.freeze()  # a collection in a device would copy every page that it shares with us
    children: dict[int, int | None] = {}
    try:
        # A broken pipe means that the process that started us is gone; nobody is left to be told.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            control.send(json.dumps(greeting).encode())
            _answer(control, parent, children)
    finally:
        for pid, status in children.items():
            if status is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _answer(control: socket.socket, parent: int, children: dict[int, int | None]) -> None:
    while True:
        readable, _, _ = select.select([control], [], [], _PARENT_CHECK_S)
        _reap(children)
        if os.getppid() != parent:
            return
        if not readable:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 65536, 1)
        if not message:
            return
        request = json.loads(message)
        if request["operation"] in _RUNS:
            pid = _fork(control, descriptors[0], request)
            children[pid] = None
            control.send(json.dumps({"pid": pid}).encode())
        else:
            control.send(json.dumps(_end(children, request["pid"])).encode())


def _run_device(connection: socket.socket, parent: int, request: dict[str, Any]) -> None:
    settings = EmulatorSettings(**request["settings"])
    serve(connection, lambda: Machine(settings), _own_operations)


def _run_reader(connection: socket.socket, parent: int, request: dict[str, Any]) -> None:
    """A fork server whose devices know a build already."""
    started = time.process_time()
    with contextlib.suppress(CandidateFault, DeviceError, RecursionError):  # a device will say so
        prepare(Path(request["build"]))
    _serve(connection, parent, {"work_s": time.process_time() - started})


_RUNS = {"fork": _run_device, "read": _run_reader}


def _fork(control: socket.socket, descriptor: int, request: dict[str, Any]) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    code = 1
    try:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:
            os._exit(1)
        control.close()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", 0) as file:
            file.write(b"1000")
        _RUNS[request["operation"]](socket.socket(fileno=descriptor), server, request)
        code = 0
    finally:
        os._exit(code)


def _own_operations(machine: Machine) -> dict[str, Operation]:
    """What the judge asks of an emulated device alone."""
    names = ("count_events", "watch_streams", "expect", "touch", "end_watch")
    return {name: getattr(machine, name) for name in names}


def _reap(children: dict[int, int | None]) -> None:
    for pid, status in children.items():
        if status is None:
            done, how = os.waitpid(pid, os.WNOHANG)
            if done:
                children[pid] = os.waitstatus_to_exitcode(how)


def _end(children: dict[int, int | None], pid: int) -> dict[str, int | None]:
    """Kill and reap one of our children; its exit code, negative for a signal it died of."""
    if pid not in children:
        return {"code": None}
    code = children.pop(pid)
    if code is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"code": code}


if __name__ == "__main__":
    main()
