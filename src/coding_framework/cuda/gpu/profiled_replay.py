"""Replays plans, between marks for a profiler: `python -m ...gpu.profiled_replay FOLDER...`.

Each folder is what `profiler.ReplayFiles` wrote. Allocations are made in the recorded order, which
gives them the recorded addresses; a module's variables may lie elsewhere in this process, and what
points to them is moved along.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from coding_framework.cuda.gpu.driver import call, cuda
from coding_framework.cuda.gpu.machine import GpuMachine
from coding_framework.cuda.gpu.replay import Replayer
from coding_framework.cuda.gpu.settings import GpuSettings
from coding_framework.cuda.plan_data import moved_ops, ops_from_data
from coding_framework.errors import DeviceError

_LAUNCH_WALL_S = 120.0
"""A profiler repeats each launch many times."""


def main() -> None:
    """Raises DeviceError where a plan's addresses cannot be had in this process."""
    folders = [Path(argument) for argument in sys.argv[1:]]
    described = [json.loads((folder / "replay.json").read_text()) for folder in folders]
    total = max(sum(nbytes for _, nbytes, _ in one["regions"]) for one in described)
    limit = max(GpuSettings().memory_limit_bytes, 2 * total)
    machine = GpuMachine(GpuSettings(memory_limit_bytes=limit, launch_wall_s=_LAUNCH_WALL_S))
    replayer = Replayer(machine)
    for folder, one in zip(folders, described, strict=True):
        _replay(machine, replayer, folder, one)
        replayer.clear()
        machine.reset()


def _replay(
    machine: GpuMachine, replayer: Replayer, folder: Path, described: dict[str, Any]
) -> None:
    module = machine.load(Path(described["build"]))
    contents = memoryview((folder / "contents").read_bytes())
    at = 0
    for address, nbytes, size in described["regions"]:
        got = machine.memory.alloc(nbytes)
        if got != address:
            raise DeviceError(f"the plan's memory at {address:#x} came to lie at {got:#x}")
        machine.memory.upload(address, contents[at : at + size])
        at += size
    moved = {
        (address, nbytes): module.symbols[name].address
        for name, (address, nbytes) in described["symbols"].items()
        if name in module.symbols
    }
    ops = ops_from_data(described["ops"], (folder / "blob").read_bytes())
    call(cuda.cuProfilerStart())
    replayer.run_once(moved_ops(ops, moved))
    call(cuda.cuProfilerStop())


if __name__ == "__main__":
    main()
