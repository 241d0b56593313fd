"""Speed of the PTX emulator, and how often it is wrong.

    uv run python benchmarks/emulator.py [--generated 5000] [--honest 240] [--repeats 7] [--seed 0]

Speed: processor time of whole launches (host side included) with sector and bank counters on, best
of `--repeats`; the bar with two cores is wall time and wants an idle machine. Right or wrong:
`--generated` random kernels (tests/support/random_kernels.py) against the same functions
compiled by gcc, `--honest` synthesised kernels and the honest halves of the fault corpus
(fault_corpus.py), all with the run-time checks on, which must stay silent; and the seeded faults of
that corpus, each of which must be found. The long parts show progress and go on where an earlier
run of the same code was stopped. Prints tables, writes benchmarks/results/emulator.json.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench_io import ROOT, bar, finish, head, this_machine

sys.path.insert(0, str(ROOT / "tests"))
from emulator_truth import generated_kernels, honest_kernels, seeded_faults

from coding_framework.cuda.emulator.device import EmulatorDevice
from support.emulator_harness import Gpu, ptx_of

FAST = {"add": 3000, "row_sum": 3000, "softmax": 3000, "layernorm": 3000, "matmul": 900,
        "matmul_tiled": 900}  # fmt: skip
"""Bars in million lane-instructions a second, one core, counters on."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One kernel under one setting."""

    kernel: str
    setting: str
    cpu_ms: float
    wall_ms: float
    mega_lanes_per_s: float


def main() -> int:
    """Run all parts; 1 where a bar does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--generated", type=int, default=5000, help="random kernels against gcc")
    parser.add_argument("--honest", type=int, default=240, help="synthesised kernels, checks on")
    parser.add_argument("--repeats", type=int, default=7, help="launches a timing is the best of")
    parser.add_argument("--seed", type=int, default=0, help="of the random kernels")
    arguments = parser.parse_args()
    machine = this_machine()  # its load, before ours
    speeds = measure_speed(arguments.repeats)
    start_ms = device_start_ms()
    faults = seeded_faults()
    honest = honest_kernels(arguments.honest)
    generated = generated_kernels(arguments.generated, arguments.seed)
    bars = [*_speed_bars(speeds), *_truth_bars(faults, honest, generated)]
    result = {
        **head("emulator", packages=("numpy",), machine=machine, versions={
            "python": platform.python_version(),
            "nvcc": _output("nvcc --version").strip().splitlines()[-1]}),
        "bars": bars,
        "speeds": [vars_of(s) for s in speeds],
        "device_start_ms": start_ms,
        "seeded_faults": faults,
        "honest": honest,
        "generated": generated,
    }  # fmt: skip
    return 0 if finish(result) else 1


def vars_of(speed: Speed) -> dict[str, Any]:
    """A speed as JSON."""
    return {name: getattr(speed, name) for name in Speed.__slots__}


# --- speed ----------------------------------------------------------------------------------------


def measure_speed(repeats: int) -> list[Speed]:
    """All kernels with no counters, counters, counters and checks, and on two threads."""
    settings: list[tuple[str, dict[str, Any], bool]] = [
        ("no counters", {"count": False}, False), ("counters", {}, False),
        ("counters and checks", {}, True), ("counters, 2 threads", {"threads": 2}, False),
    ]  # fmt: skip
    lanes: dict[str, float] = {}
    found = []
    for setting, options, checks in (settings[1], settings[0], *settings[2:]):
        gpu = Gpu(ptx_of("basic.cu"), **options)
        for name, launch in _kernels(gpu).items():
            best_cpu, best_wall = float("inf"), float("inf")
            for _ in range(repeats):
                cpu, wall = time.process_time(), time.perf_counter()
                report = launch(checks)
                best_cpu = min(best_cpu, time.process_time() - cpu)
                best_wall = min(best_wall, time.perf_counter() - wall)
            if setting == "counters":
                lanes[name] = report.counters["smsp__thread_inst_executed.sum"]
            spent = best_wall if "threads" in setting else best_cpu
            found.append(Speed(name, setting, best_cpu * 1e3, best_wall * 1e3,
                               lanes[name] / spent / 1e6))  # fmt: skip
            print(f"{name:14s} {setting:20s} {best_cpu * 1e3:9.2f} ms cpu {best_wall * 1e3:9.2f} "
                  f"ms wall {found[-1].mega_lanes_per_s:8.0f} M lane-instructions/s")  # fmt: skip
    return found


def _kernels(gpu: Gpu) -> dict[str, Callable[[bool], Any]]:
    """Launches of 1M elements, or a matrix product of 256."""
    rng = np.random.default_rng(0)
    n, size = 1 << 20, 256

    def array(*shape: int) -> int:
        return gpu.put(rng.standard_normal(shape).astype(np.float32))

    a, b, c = array(n), array(n), array(n)
    g, h = array(1024), array(1024)
    tile = (size // 16, size // 16)

    def launch(*arguments: Any, shared: int = 0) -> Callable[[bool], Any]:
        return lambda checks: gpu.run(*arguments, shared=shared, checks=checks)

    return {
        "add": launch("add", n // 256, 256, a, b, c, n),
        "add4": launch("add4", n // 1024, 256, a, b, c, n // 4),
        "row_sum": launch("row_sum", 256, 256, a, c, 4096),
        "softmax": launch("softmax", 1024, 256, a, c, 1024, shared=1024),
        "layernorm": launch("layernorm", 1024, 256, a, g, h, c, 1024, 1e-5),
        "matmul": launch("matmul", tile, (16, 16), a, b, c, size),
        "matmul_tiled": launch("matmul_tiled", tile, (16, 16), a, b, c, size),
        "transpose": launch("transpose", (32, 128), (32, 8), a, c, 1024, 1024),
    }


def device_start_ms() -> float:
    """Median time of a fresh device process, without the first."""
    EmulatorDevice().close()
    times = []
    for _ in range(15):
        start = time.perf_counter()
        EmulatorDevice().close()
        times.append((time.perf_counter() - start) * 1e3)
    median = float(np.median(times))
    print(f"a fresh device process: {median:.1f} ms")
    return median


# --- bars and the machine -------------------------------------------------------------------------


def _speed_bars(speeds: list[Speed]) -> list[dict[str, Any]]:
    rates = {(s.kernel, s.setting): s for s in speeds}
    bars = []
    for name, target in FAST.items():
        value = rates[name, "counters"].mega_lanes_per_s
        text = f"{name}, counters on, one core (M lane-instructions/s)"
        bars.append(bar(text, target, value, value >= target))
    gains = [
        rates[n, "counters"].wall_ms / rates[n, "counters, 2 threads"].wall_ms
        for n in ("matmul", "matmul_tiled", "softmax")
    ]
    gain = float(np.median(gains))
    bars.append(bar("two cores over one, wall time (median of 3 kernels)", 1.7, gain, gain >= 1.7))
    return bars


def _truth_bars(
    faults: dict[str, Any], honest: dict[str, Any], generated: dict[str, Any]
) -> list[dict[str, Any]]:
    found = faults["seeded"] - len(faults["missed"])
    innocent = faults["seeded"] + honest["kernels"]
    alarms = [*faults["false_alarms"], *honest["false_alarms"]]
    done, wrong = generated["kernels"], generated["wrong"]
    return [
        bar("generated kernels compared with gcc", 5000, done, done >= 5000),
        bar("wrong results in generated kernels", 0, len(wrong), not wrong),
        bar("false alarms in generated kernels", 0, len(generated["false_alarms"]),
             not generated["false_alarms"]),
        bar("seeded faults found", faults["seeded"], found, not faults["missed"]),
        bar("honest kernels checked", 200, innocent, innocent >= 200),
        bar("false alarms on honest kernels", 0, len(alarms), not alarms),
        bar("honest kernels that are not correct", 0, len(honest["not_correct"]),
             not honest["not_correct"]),
    ]  # fmt: skip


def _output(command: str) -> str:
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
