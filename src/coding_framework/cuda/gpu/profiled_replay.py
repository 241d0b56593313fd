"""Replays a plan, between marks for a profiler: `python -m ...gpu.profiled_replay FOLDER`.

The folder is what `profiler.ReplayFiles` wrote. Allocations are made in the recorded order, which
gives them the recorded addresses where the driver grants the range; a module's variables may lie
elsewhere in this process. Pointers in launch parameters to what lies elsewhere are moved along.
"""

from __future__ import annotations

import sys
from pathlib import Path

from coding_framework.cuda.device.wire import unpacked
from coding_framework.cuda.gpu.driver import call, cuda
from coding_framework.cuda.gpu.machine import GpuMachine
from coding_framework.cuda.gpu.replay import Replayer
from coding_framework.cuda.gpu.settings import GpuSettings
from coding_framework.cuda.plan.moved import moved_ops

_LAUNCH_WALL_S = 120.0
"""A profiler repeats each launch many times."""


def main() -> None:
    """The plan in the folder."""
    folder = Path(sys.argv[1])
    described = unpacked((folder / "replay.json").read_bytes(), (folder / "blob").read_bytes())
    total = sum(nbytes for _, nbytes, _ in described["regions"])
    limit = max(GpuSettings().memory_limit_bytes, 2 * total)
    machine = GpuMachine(GpuSettings(memory_limit_bytes=limit, launch_wall_s=_LAUNCH_WALL_S))
    replayer = Replayer(machine)
    module = machine.load(Path(described["build"]))
    moved = {
        (address, nbytes): module.symbols[name].address
        for name, (address, nbytes) in described["symbols"].items()
        if name in module.symbols
    }
    for address, nbytes, contents in described["regions"]:
        now = moved[address, nbytes] = machine.memory.alloc(nbytes)
        machine.memory.upload(now, contents or b"")
    call(cuda.cuProfilerStart())
    replayer.run_once(moved_ops(described["ops"], moved))
    call(cuda.cuProfilerStop())


if __name__ == "__main__":
    main()
