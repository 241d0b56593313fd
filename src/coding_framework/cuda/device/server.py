"""The serving half of a device process: requests from a socket, carried out by a machine of ours.

One loop for both devices. A candidate's fault goes back as data, a fault of ours as an error; what
the loop does not know, it refuses.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from coding_framework.cuda.device import wire
from coding_framework.cuda.plan.launch_plan import (
    CandidateFault,
    Launch,
    LaunchReport,
    ModuleInfo,
)
from coding_framework.errors import DeviceFullError
from coding_framework.types import Status

MAX_MESSAGE = 16 << 30
_TOO_DEEP = "the device code is nested deeper than a device can hold"
_OF_MEMORY = frozenset({"alloc", "free", "poison", "upload", "download", "copy", "fill"})


class DeviceMachine(Protocol):
    """What runs a candidate's device code: the emulator's machine, or that of a GPU."""

    @property
    def memory(self) -> Any:
        """Its global memory: `_OF_MEMORY`, as `cuda/device/device.py` has them, and `damage`."""
        ...

    def load(self, build: Path) -> ModuleInfo: ...
    def launch(self, launch: Launch, *, checks: bool = False) -> LaunchReport: ...


Operation = Callable[..., Any]
"""Given what the judge sends, and gives what it is sent: JSON, records and bytes (`wire.py`)."""


class DeviceBroken(Exception):  # noqa: N818 - ends the process, after an answer
    """The device is of no more use. `fault`: what the candidate did; None: a fault of ours."""

    def __init__(self, message: str, fault: CandidateFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


def serve(
    connection: socket.socket,
    make_machine: Callable[[], DeviceMachine],
    more: Callable[[Any], Mapping[str, Operation]],
    around: Callable[[str], AbstractContextManager[None]] = lambda operation: nullcontext(),
    clock: Callable[[], float] = time.process_time,
) -> None:
    """Answer requests until the other end is gone, or the device is broken.

    more: operations of this machine alone, beside the common ones. around: what an operation is
    carried out in, by its name. clock: what the work of an operation is measured by, within that.
    """
    carry_out: Operation | None = None
    broken = False
    while not broken:
        try:
            operation, *arguments = wire.receive(connection, MAX_MESSAGE)
        except EOFError:
            return
        answer: dict[str, Any] = {}
        try:
            if carry_out is None:
                machine = make_machine()
                carry_out = _performer(machine, more(machine))
            with around(operation):
                started = clock()
                answer["result"] = carry_out(operation, *arguments)
                answer["work_s"] = clock() - started
        except CandidateFault as fault:
            answer = _fault_as_data(fault)
        except RecursionError:
            answer = _fault_as_data(CandidateFault(Status.MEMORY_LIMIT, _TOO_DEEP))
        except DeviceBroken as e:
            broken = True
            answer = {"error": str(e)} if e.fault is None else _fault_as_data(e.fault)
            answer["broken"] = True
        except Exception as e:  # the boundary: our fault, told to the other end
            answer = {"error": f"{type(e).__name__}: {e}", "full": isinstance(e, DeviceFullError)}
        wire.send(connection, answer)


def _fault_as_data(fault: CandidateFault) -> dict[str, Any]:
    return {"status": fault.status.value, "reason": fault.reason, "output": fault.output}


def _performer(machine: DeviceMachine, more: Mapping[str, Operation]) -> Operation:
    """Carries out an operation, by its name and its arguments."""

    def together(asked: Sequence[Sequence[Any]]) -> list[Any]:
        return [perform(*one) for one in asked]

    known: dict[str, Operation] = {
        "load": lambda build: machine.load(Path(build)),
        "launch": lambda launch, checks: machine.launch(launch, checks=checks),
        "check_guards": lambda: machine.memory.damage(),
        "process": os.getpid,
        "together": together,
        **more,
    }

    def perform(operation: str, *arguments: Any) -> Any:
        if operation in _OF_MEMORY:
            return getattr(machine.memory, operation)(*arguments)
        if operation not in known:
            raise ValueError(f"unknown operation {operation!r}")
        return known[operation](*arguments)

    return perform
