"""The serving half of a device process: requests from a socket, carried out by a machine of ours.

One loop for both devices. A candidate's fault goes back as data, a fault of ours as an error; what
the loop does not know, it refuses.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from coding_framework.cuda.device import wire
from coding_framework.cuda.plan.launch_plan import (
    CandidateFault,
    Launch,
    LaunchReport,
    Layout,
    ModuleInfo,
)
from coding_framework.cuda.plan.plan_data import layout_of
from coding_framework.errors import DeviceFullError
from coding_framework.types import Status

MAX_MESSAGE = 16 << 30
_TOO_DEEP = "the device code is nested deeper than a device can hold"

Answer = tuple[Any, bytes | memoryview]
"""A result that JSON can say, and raw bytes."""


class Memory(Protocol):
    """A machine's global memory; see `cuda/device/device.py` for what each method promises."""

    def alloc(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def poison(self, address: int) -> None: ...
    def upload(self, address: int, data: memoryview) -> None: ...
    def download(self, address: int, nbytes: int) -> bytes: ...
    def copy(self, destination: int, source: int, nbytes: int, layout: Layout | None) -> None: ...
    def fill(self, address: int, value: int, nbytes: int) -> None: ...
    def damage(self) -> str | None: ...


class DeviceMachine(Protocol):
    """What runs a candidate's device code: the emulator's machine, or that of a GPU."""

    @property
    def memory(self) -> Memory: ...

    def load(self, build: Path) -> ModuleInfo: ...
    def launch(self, launch: Launch, *, checks: bool = False) -> LaunchReport: ...


Operation = Callable[[list[Any], memoryview], Answer]
"""What only one of the devices can do, by name: called with arguments and payload."""


class DeviceBroken(Exception):  # noqa: N818 - ends the process, after an answer
    """The device is of no more use. `fault`: what the candidate did; None: a fault of ours."""

    def __init__(self, message: str, fault: CandidateFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


def serve(
    connection: socket.socket,
    make_machine: Callable[[], DeviceMachine],
    more: Callable[[DeviceMachine], Mapping[str, Operation]] | None = None,
    around: Callable[[str], AbstractContextManager[None]] = lambda operation: nullcontext(),
    clock: Callable[[], float] = time.process_time,
) -> None:
    """Answer requests until the other end is gone, or the device is broken.

    more: operations of this device alone, beside the common ones. around: what an operation is
    carried out in, by its name. clock: what the work of an operation is measured by, within that.
    """
    machine: DeviceMachine | None = None
    own: Mapping[str, Operation] = {}
    broken = False
    while not broken:
        try:
            request, payload = wire.receive(connection, MAX_MESSAGE)
        except EOFError:
            return
        answer: dict[str, Any] = {}
        data: bytes | memoryview = b""
        try:
            if machine is None:
                machine = make_machine()
                own = more(machine) if more is not None else {}
            with around(request["operation"]):
                started = clock()
                answer["result"], data = _perform(machine, own, request, memoryview(payload))
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
        wire.send(connection, answer, data)


def _fault_as_data(fault: CandidateFault) -> dict[str, Any]:
    return {"status": fault.status.value, "reason": fault.reason, "output": fault.output}


def _perform_together(
    machine: DeviceMachine, own: Mapping[str, Operation], asked: list[Any], payload: memoryview
) -> Answer:
    """Several operations in order. asked: (operation, arguments, bytes of its payload) of each; the
    payloads follow each other. Gives what each results in, with the size of its bytes, which begin
    at multiples of `wire.ALIGNMENT`."""
    results, parts, at = [], [], 0
    for operation, arguments, nbytes in asked:
        request = {"operation": operation, "arguments": arguments}
        result, data = _perform(machine, own, request, payload[at : at + nbytes])
        at += nbytes
        results.append((result, len(data)))
        parts += [data, bytes(-len(data) % wire.ALIGNMENT)]
    return results, b"".join(parts)


def _perform(
    machine: DeviceMachine,
    own: Mapping[str, Operation],
    request: dict[str, Any],
    payload: memoryview,
) -> Answer:
    memory = machine.memory
    arguments = request["arguments"]
    result: Any = None
    data: bytes | memoryview = b""
    match request["operation"]:
        case "load":
            result = dataclasses.asdict(machine.load(Path(arguments[0])))
        case "alloc" | "free" | "poison" | "fill" as name:
            result = getattr(memory, name)(*arguments)
        case "upload":
            memory.upload(arguments[0], payload)
        case "download":
            data = memory.download(*arguments)
        case "copy":
            destination, source, nbytes, layout = arguments
            memory.copy(destination, source, nbytes, layout and layout_of(*layout))
        case "launch":
            launch, checks = launch_of(arguments, payload)
            report = machine.launch(launch, checks=checks)
            faults = [dataclasses.asdict(fault) for fault in report.faults]
            result = {**_fields(report), "faults": faults}
        case "check_guards":
            result = memory.damage()
        case "process":
            result = os.getpid()
        case "together":
            return _perform_together(machine, own, arguments[0], payload)
        case other if other in own:
            return own[other](arguments, payload)
        case other:
            raise ValueError(f"unknown operation {other!r}")
    return result, data


def _fields(report: LaunchReport) -> dict[str, Any]:
    """Not `dataclasses.asdict`, which copies each of some hundred counters."""
    return {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}


def launch_of(arguments: list[Any], params: memoryview) -> tuple[Launch, bool]:
    """A launch as `remote_device.py` sends it, and whether it is checked."""
    kernel, grid, block, shared_bytes, cooperative, checks = arguments
    launch = Launch(
        kernel, tuple(grid), tuple(block), shared_bytes, bytes(params), cooperative=cooperative
    )
    return launch, checks
