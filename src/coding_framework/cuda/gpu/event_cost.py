"""What events count of a kernel beyond its own time, measured once a GPU and driver.

Between two events lies more than what an empty plan shows there: the first launch after an event
costs another 1.0 to 1.5 us, of which CUPTI's durations, and so Nsight's and PyTorch's profilers,
know nothing. Nothing but CUPTI tells it, and CUPTI does not belong into a process that runs a
candidate. So a process of its own times reads of ours both ways, and the difference is kept beside
the GPU's bandwidth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from coding_framework.cuda.device.gpu_sharing import Gpu, GpuLock
from coding_framework.cuda.gpu.device import environment
from coding_framework.cuda.timing.statistics import TimingProtocol
from coding_framework.cuda.toolchain.slots import slot
from coding_framework.paths import cache_dir, write_json_atomic
from coding_framework.store.events import log

_READS_MIB = (1, 2, 4, 8)
_CALLS = 30
_TIMEOUT_S = 120.0
_BELIEVED_MS = (2e-4, 3e-3)
"""Where it can lie: anything else is a fault of the measurement."""
_AGAIN_S = 3600.0
"""How long a failed measurement counts."""


def protocol_on(gpu: Gpu) -> TimingProtocol:
    """The protocol of a verdict, with what events cost on this GPU."""
    return TimingProtocol(event_ms=event_cost_ms(gpu))


def event_cost_ms(gpu: Gpu) -> float:
    """Milliseconds; 0 where they cannot be measured, with a warning."""
    folder = cache_dir() / "gpus" / gpu.uuid
    path = folder / "event_cost.json"
    kept = _kept(path, gpu)
    if kept is not None:
        return kept
    with slot(folder / "event_cost", 1):
        kept = _kept(path, gpu)  # another judge measured it meanwhile
        if kept is not None:
            return kept
        found, why = _measured(gpu)
        if why:
            log.warning("event_cost_unknown", gpu=gpu.name, why=why)
        row = {"driver": gpu.driver, "event_ms": found, "why": why, "at": time.time()}
        write_json_atomic(path, row)
    return found


def _kept(path: Path, gpu: Gpu) -> float | None:
    try:
        row: dict[str, Any] = json.loads(path.read_text())
        found, failed = float(row["event_ms"]), bool(row["why"])
        right = found == 0.0 if failed else _believed(found)
        lasts = not failed or time.time() - row["at"] < _AGAIN_S
        return found if row["driver"] == gpu.driver and right and lasts else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there yet, or damaged: measured again


def _measured(gpu: Gpu) -> tuple[float, str]:
    """(ms, why there are none)."""
    command = [sys.executable, "-m", __name__, gpu.uuid]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment(gpu.uuid),
            stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        found = float(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.CalledProcessError as e:
        return 0.0, f"its process ended with {e.returncode}: {e.stderr.strip()[-300:]}"
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as e:
        return 0.0, f"{type(e).__name__}: {e}"
    if not _believed(found):
        return 0.0, f"{1e3 * found:.2f} us are not believed"
    return found, ""


def _believed(found: float) -> bool:
    low, high = _BELIEVED_MS
    return low <= found <= high


def main() -> None:
    """Measure, in a process that sees one GPU, and print milliseconds."""
    import torch

    from coding_framework.cuda.gpu.machine import GpuMachine
    from coding_framework.cuda.gpu.replay import Replayer

    answer = os.fdopen(os.dup(1), "w")  # the machine takes standard output for what kernels print
    torch.cuda.init()  # type: ignore[no-untyped-call]
    machine = GpuMachine()
    replayer = Replayer(machine)
    with GpuLock(sys.argv[1]).alone():
        costs = []
        for nbytes in (mib << 20 for mib in _READS_MIB):
            address = machine.memory.alloc(nbytes)
            shown = replayer.time_read(address, nbytes, _CALLS)
            costs.append(shown - _cupti_ms(machine, replayer, address, nbytes))
    print(json.dumps(median(costs)), file=answer, flush=True)
    os._exit(0)


def _cupti_ms(machine: Any, replayer: Any, address: int, nbytes: int) -> float:
    """What CUPTI says of the same read, as cold."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        for _ in range(_CALLS):
            replayer.enqueue_flush()
            machine.read_all(address, nbytes)
            machine.wait()
    ours = [e for e in traced.events() if "read_all" in e.name]
    ours.sort(key=lambda e: e.time_range.start)
    if len(ours) != 2 * _CALLS:
        raise SystemExit(f"the profiler saw {len(ours)} kernels of {2 * _CALLS}")
    return float(median(e.device_time_total for e in ours[1::2])) / 1e3


if __name__ == "__main__":
    main()
