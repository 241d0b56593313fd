"""The device process of a GPU: `python -m coding_framework.cuda.gpu.process FD PARENT UUID LIMITS`.

It serves one candidate after another and is made ready in between; after an error that a CUDA
context does not survive it ends. It ends as well when its socket closes or its parent is gone, also
while a kernel of a candidate runs for ever: a thread looks every half second.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from typing import Any

from coding_framework.cuda.device.gpu_sharing import GpuLock
from coding_framework.cuda.device.server import DeviceMachine, Operation, serve
from coding_framework.cuda.gpu.driver import DriverError, call, cuda, open_memory
from coding_framework.cuda.gpu.machine import GpuMachine
from coding_framework.cuda.gpu.replay import Region, Replayer, TimedPlan
from coding_framework.cuda.gpu.settings import GpuSettings
from coding_framework.cuda.plan.plan_data import ops_from_data
from coding_framework.cuda.timing.statistics import TimingProtocol

_PARENT_CHECK_S = 0.5
_PRIORITY = -10
_ALONE = frozenset({"measure", "bandwidth"})
_NO_LOCK = frozenset({"process", "hello"})


def main() -> None:
    """Serve until the other end is gone."""
    descriptor, parent, uuid, settings = sys.argv[1:5]
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("500")
    with suppress(OSError):  # where it is allowed: no compiler makes a timed call wait
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    lock = GpuLock(uuid)

    def around(operation: str) -> AbstractContextManager[None]:
        if operation in _ALONE:
            return lock.alone()
        return nullcontext() if operation in _NO_LOCK else lock.shared()

    # a broken pipe means that the judge is gone; nobody is left to be told
    with suppress(BrokenPipeError, ConnectionResetError):
        serve(
            socket.socket(fileno=int(descriptor)),
            lambda: GpuMachine(GpuSettings(**json.loads(settings))),
            _operations,
            around,
            time.monotonic,  # nobody else's operation runs meanwhile in this process
        )
    os._exit(0)  # no destructor may wait for a kernel that does not end


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os._exit(1)


def _operations(machine: DeviceMachine) -> Mapping[str, Operation]:
    assert isinstance(machine, GpuMachine)
    service = _Service(machine)
    return {
        "hello": service.hello,
        "reset": service.reset,
        "share": service.share,
        "take": service.take,
        "give": service.give,
        "stage": service.stage,
        "measure": service.measure,
        "kept": service.kept,
        "bandwidth": service.bandwidth,
    }


class _Service:
    """What a GPU can do beside the common operations. Arguments are as `device.py` sends them."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._replayer = Replayer(machine)
        self._shared = 0

    def hello(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        machine = self._machine
        facts = {"name": machine.name, "architecture": machine.architecture}
        return {**facts, "properties": asdict(machine.properties())}, b""

    def reset(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        self._replayer.clear()
        self._machine.reset()
        return None, b""

    # --- large tensors, through memory that the judge shares with us ------------------------------

    def share(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        """Map the judge's exchange buffer, by its IPC handle; whether the system allows it."""
        if self._shared:
            call(cuda.cuIpcCloseMemHandle(self._shared))
            self._shared = 0
        try:
            self._shared = open_memory(bytes(payload))
        except DriverError:
            return False, b""
        return True, b""

    def take(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        """From the exchange buffer to an allocation."""
        address, nbytes = arguments
        self._machine.memory.require(address, nbytes, "a copy to the device")
        self._copy(address, self._shared, nbytes)
        return None, b""

    def give(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        """From an allocation to the exchange buffer."""
        address, nbytes = arguments
        self._machine.memory.require(address, nbytes, "a copy from the device")
        self._copy(self._shared, address, nbytes)
        return None, b""

    def _copy(self, destination: int, source: int, nbytes: int) -> None:
        if not self._shared:
            raise ValueError("no exchange buffer is shared")
        call(cuda.cuMemcpyDtoDAsync(destination, source, nbytes, self._machine.stream))
        self._machine.wait()

    # --- timing -----------------------------------------------------------------------------------

    def stage(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        """One draw of one input, in the message or (where that is empty) in the exchange buffer."""
        region, draws, draw = Region(*arguments[0]), arguments[1], arguments[2]
        if len(payload) or not region.nbytes:
            self._replayer.stage(region, draws, draw, payload)
        else:
            at = self._replayer.pool(region, draws) + draw * region.nbytes
            self._copy(at, self._shared, region.nbytes)
        return None, b""

    def measure(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        rows, inputs, blocks, outputs, draws, fresh, protocol = arguments
        plan = TimedPlan(
            ops=ops_from_data(rows, payload),
            inputs=tuple(Region(*region) for region in inputs),
            blocks=tuple(Region(*region) for region in blocks),
            outputs=tuple(Region(*region) for region in outputs),
            draws=draws,
            fresh=fresh,
        )
        return asdict(self._replayer.measure(plan, TimingProtocol(**protocol))), b""

    def kept(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        """What a checked call put out: in the answer, or (share: True) in the exchange buffer."""
        draw, output, nbytes, share = arguments
        at = self._replayer.kept(draw, output)
        if share:
            self._copy(self._shared, at, nbytes)
            return None, b""
        return None, self._machine.memory.read(at, nbytes)

    def bandwidth(self, arguments: list[Any], payload: memoryview) -> tuple[Any, bytes]:
        return self._replayer.bandwidth(), b""


if __name__ == "__main__":
    main()
