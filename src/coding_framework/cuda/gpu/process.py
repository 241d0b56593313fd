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
from coding_framework.cuda.device.server import Operation, serve
from coding_framework.cuda.gpu.driver import DriverError, call, cuda, open_memory
from coding_framework.cuda.gpu.machine import GpuMachine
from coding_framework.cuda.gpu.replay import Region, Replayer, TimedPlan
from coding_framework.cuda.gpu.settings import GpuSettings
from coding_framework.cuda.plan.launch_plan import PlanOp
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


def _operations(machine: GpuMachine) -> Mapping[str, Operation]:
    service = _Service(machine)
    names = ("hello", "reset", "share", "take", "give", "stage", "measure", "kept", "bandwidth")
    return {name: getattr(service, name) for name in names}


class _Service:
    """What a GPU can do beside the common operations. Arguments are as `device.py` sends them."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._replayer = Replayer(machine)
        self._shared = 0

    def hello(self) -> dict[str, Any]:
        machine = self._machine
        facts = {"name": machine.name, "architecture": machine.architecture}
        return {**facts, "properties": asdict(machine.properties())}

    def reset(self) -> None:
        self._replayer.clear()
        self._machine.reset()

    # --- large tensors, through memory that the judge shares with us ------------------------------

    def share(self, handle: memoryview) -> bool:
        """Map the judge's exchange buffer, by its IPC handle; whether the system allows it."""
        if self._shared:
            call(cuda.cuIpcCloseMemHandle(self._shared))
            self._shared = 0
        try:
            self._shared = open_memory(bytes(handle))
        except DriverError:
            return False
        return True

    def take(self, address: int, nbytes: int) -> None:
        """From the exchange buffer to an allocation."""
        self._machine.memory.require(address, nbytes, "a copy to the device")
        self._copy(address, self._shared, nbytes)

    def give(self, address: int, nbytes: int) -> None:
        """From an allocation to the exchange buffer."""
        self._machine.memory.require(address, nbytes, "a copy from the device")
        self._copy(self._shared, address, nbytes)

    def _copy(self, destination: int, source: int, nbytes: int) -> None:
        if not self._shared:
            raise ValueError("no exchange buffer is shared")
        call(cuda.cuMemcpyDtoDAsync(destination, source, nbytes, self._machine.stream))
        self._machine.wait()

    # --- timing -----------------------------------------------------------------------------------

    def stage(self, where: list[int], draws: int, draw: int, data: memoryview | None) -> None:
        """One draw of one input: these bytes or (None) those in the exchange buffer."""
        region = Region(*where)
        if data is not None or not region.nbytes:
            self._replayer.stage(region, draws, draw, data or memoryview(b""))
        else:
            at = self._replayer.pool(region, draws) + draw * region.nbytes
            self._copy(at, self._shared, region.nbytes)

    def measure(
        self,
        ops: list[PlanOp],
        inputs: list[list[int]],
        blocks: list[list[int]],
        outputs: list[list[int]],
        draws: int,
        fresh: bool,
        protocol: dict[str, Any],
    ) -> dict[str, Any]:
        inputs_, blocks_, outputs_ = (
            tuple(Region(*region) for region in part) for part in (inputs, blocks, outputs)
        )
        plan = TimedPlan(tuple(ops), inputs_, blocks_, outputs_, draws, fresh)
        return asdict(self._replayer.measure(plan, TimingProtocol(**protocol)))

    def kept(self, draw: int, output: int, nbytes: int, share: bool) -> bytes | None:
        """What a checked call put out: in the answer, or (share: True) in the exchange buffer."""
        at = self._replayer.kept(draw, output)
        if share:
            self._copy(self._shared, at, nbytes)
            return None
        return self._machine.memory.read(at, nbytes)

    def bandwidth(self) -> float:
        return self._replayer.bandwidth()


if __name__ == "__main__":
    main()
