"""The device process: serves one `EmulatorDevice` over a socket until it closes."""

from __future__ import annotations

import dataclasses
import os
import socket
from pathlib import Path
from typing import Any

from coding_framework.cuda.emulator import wire
from coding_framework.cuda.emulator.machine import Machine
from coding_framework.cuda.emulator.program import unsupported
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.plan import CandidateFault, Launch

MAX_MESSAGE = 16 << 30


def serve(connection: socket.socket, settings: EmulatorSettings) -> None:
    """Answer requests until the other end is gone. Faults of the candidate go back as data."""
    machine: Machine | None = None
    while True:
        try:
            request, payload = wire.receive(connection, MAX_MESSAGE)
        except EOFError:
            return
        answer: dict[str, Any] = {}
        data: bytes = b""
        try:
            if machine is None:
                machine = Machine(settings)
            answer["result"], data = _perform(machine, request, payload)
        except CandidateFault as fault:
            answer = {"status": fault.status.value, "reason": fault.reason, "output": fault.output}
        except RecursionError:
            gap = unsupported("code nested this deep")
            answer = {"status": gap.status.value, "reason": gap.reason}
        except Exception as e:  # the boundary: our fault, told to the other end
            answer = {"error": f"{type(e).__name__}: {e}"}
        wire.send(connection, answer, data)


def _perform(machine: Machine, request: dict[str, Any], payload: bytearray) -> tuple[Any, bytes]:
    memory = machine.memory
    arguments = request["arguments"]
    result: Any = None
    data = b""
    match request["operation"]:
        case "load":
            result = dataclasses.asdict(machine.load(Path(arguments[0])))
        case "alloc":
            result = memory.alloc(arguments[0])
        case "free":
            memory.free(arguments[0])
        case "poison":
            memory.poison(arguments[0])
        case "upload":
            memory.upload(arguments[0], memoryview(payload))
        case "download":
            data = memory.download(*arguments)
        case "copy":
            memory.copy(*arguments)
        case "fill":
            memory.fill(*arguments)
        case "launch":
            result = _launch(machine, arguments, bytes(payload))
        case "check_guards":
            result = memory.damage()
        case "process":
            result = os.getpid()
        case other:
            raise ValueError(f"unknown operation {other!r}")
    return result, data


def _launch(machine: Machine, arguments: list[Any], params: bytes) -> dict[str, Any]:
    kernel, grid, block, shared_bytes, cooperative, checks = arguments
    launch = Launch(
        kernel, tuple(grid), tuple(block), shared_bytes, params, cooperative=cooperative
    )
    return dataclasses.asdict(machine.launch(launch, checks=checks))
