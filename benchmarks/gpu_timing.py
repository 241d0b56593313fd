"""How far the judge's clock can be believed: against Nsight, against itself, on a loaded machine.

    uv run python benchmarks/gpu_timing.py --part first      (3 min: our clock, and ncu's)
    uv run python benchmarks/gpu_timing.py --part loaded     (2 min: compilers load all cores)
    uv run python benchmarks/gpu_timing.py --part second     (1 min: 20 minutes after first)
    uv run python benchmarks/gpu_timing.py --part report

35 kernels of about 5 us to 5 ms (gpu_plans.py), each by the protocol of a verdict. Against ncu's
gpu__time_duration, and the profiler of PyTorch (CUPTI's activity records) for those below 20 us.
Rows are kept in runs/gpu_timing (or --work DIR) and not measured again; `report` writes
benchmarks/results/gpu_timing.GPU.json and exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from bench_io import bar
from gpu_bench import Deadline, Rows, this_gpu, write_report
from gpu_plans import PlannedKernel, build, clock_kernels

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.device.gpu_sharing import clocks
from coding_framework.cuda.gpu.device import CudaDevice
from coding_framework.cuda.gpu.event_cost import protocol_on
from coding_framework.cuda.plan.launch_plan import ModuleInfo
from coding_framework.cuda.timing.profiler import ReplayFiles, profile_plans
from coding_framework.cuda.timing.statistics import TimingProtocol, summary
from coding_framework.cuda.toolchain.slots import available_cores

DURATION = "gpu__time_duration.sum"
SHORT_US = 20.0
APART_S = 20 * 60
_CUPTI_CALLS = 30


def measure(folder: Path, kernel: PlannedKernel, protocol: TimingProtocol) -> dict[str, Any]:
    """Our clock on one kernel: median and interval in us, as a verdict has them."""
    with CudaDevice() as device:
        device.load(folder)
        plan, x, o = kernel.place(device)
        region = (x, kernel.input_bytes, 4)
        for draw in range(2):
            device.stage(region, 2, draw, torch.from_numpy(kernel.contents(draw)))
        outputs = [(o, kernel.output_bytes)]
        raw = device.measure(plan, [region], outputs, outputs, 2, protocol)
    found = summary(raw["samples_ms"], protocol)
    return {
        "us": 1e3 * found.median_ms,
        "ci95_us": [1e3 * found.low_ms, 1e3 * found.high_ms],
        "samples": found.samples,
        "settled": found.settled,
        "empty_us": 1e3 * raw["empty_ms"],
        "not_captured": raw["not_captured"],
    }


def run_part(rows: Rows, part: str, folder: Path, deadline: Deadline) -> None:
    """Our clock on every kernel that this part has not measured yet."""
    protocol = protocol_on(this_gpu())
    for kernel in clock_kernels():
        key = f"{part}/{kernel.name}"
        if key in rows:
            continue
        if deadline:
            print("out of time: run the same command again")
            return
        row = measure(folder, kernel, protocol)
        rows.add(key, {"part": part, "kernel": kernel.name, **row, "clocks": clocks(this_gpu())})
        print(f"{key:40s} {row['us']:10.2f} us  {row['samples']} samples {row['not_captured']}")


def replay_files(folder: Path, kernel: PlannedKernel) -> ReplayFiles:
    with CudaDevice() as device:
        module: ModuleInfo = device.load(folder)
        plan, x, o = kernel.place(device)
    contents = kernel.contents().tobytes()
    regions = [(x, kernel.input_bytes, contents), (o, kernel.output_bytes, None)]
    return ReplayFiles(folder, plan, module, regions)


def run_ncu(rows: Rows, folder: Path, seconds: float) -> None:
    """Nsight's durations of the kernels that have none yet, in one run of ncu."""
    todo = [k for k in clock_kernels() if f"ncu/{k.name}" not in rows]
    if not todo:
        return
    files = [replay_files(folder, kernel) for kernel in todo]
    profiles = profile_plans(files, this_gpu(), (DURATION,), seconds)
    for kernel, profile in zip(todo, profiles, strict=True):
        if profile.note:
            print(profile.note)
            return
        us = profile.reports[0].counters[DURATION] / 1e3
        rows.add(f"ncu/{kernel.name}", {"part": "ncu", "kernel": kernel.name, "us": us})


def run_cupti(rows: Rows, folder: Path) -> None:
    """CUPTI's durations of the short kernels, from a process of ours under PyTorch's profiler."""
    short = {r["kernel"] for r in rows if r.get("part") == "first" and r["us"] < 1.5 * SHORT_US}
    todo = [k for k in short if f"cupti/{k}" not in rows]
    if not todo:
        return
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        command = [sys.executable, __file__, "--part", "cupti-process", "--answer", answer.name]
        command += ["--build", str(folder), "--only", json.dumps(todo)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            print(f"no CUPTI durations: {done.stderr.strip()[-500:]}")
            return
        for name, us in json.load(answer).items():
            rows.add(f"cupti/{name}", {"part": "cupti", "kernel": name, "us": us})


def cupti_process(folder: Path, only: list[str], answer: Path) -> None:
    """Runs the kernels in this process, cold, under PyTorch's profiler; writes medians in us."""
    from torch.profiler import ProfilerActivity, profile

    from coding_framework.cuda.gpu.machine import GpuMachine
    from coding_framework.cuda.gpu.replay import Replayer

    torch.cuda.init()
    machine = GpuMachine()
    replayer = Replayer(machine)
    found: dict[str, float] = {}
    for kernel in (k for k in clock_kernels() if k.name in only):
        machine.load(folder)
        x = machine.memory.alloc(kernel.input_bytes)
        machine.memory.upload(x, kernel.contents().tobytes())
        machine.memory.alloc(kernel.output_bytes)
        plan = _placed(machine, kernel, x)
        with profile(activities=[ProfilerActivity.CUDA]) as traced:
            for _ in range(_CUPTI_CALLS):
                replayer.enqueue_flush()
                replayer.run_once(plan.ops)
        durations = [e.device_time_total for e in traced.events() if kernel.kernel in e.name]
        found[kernel.name] = statistics.median(durations)
        machine.reset()
    answer.write_text(json.dumps(found))


class _Placed:
    """Just enough of a Device for `PlannedKernel.place`: memory that is there already."""

    def __init__(self, addresses: list[int]) -> None:
        self._addresses = addresses

    def alloc(self, nbytes: int) -> int:
        return self._addresses.pop(0)


def _placed(machine: Any, kernel: PlannedKernel, x: int) -> Any:
    o = machine.memory.allocations[-1].address
    return kernel.place(_Placed([x, o]))[0]  # type: ignore[arg-type]


@contextmanager
def compilers_on_all_cores(compiler: CUDACompiler) -> Iterator[None]:
    """nvcc runs of fresh sources on every core while the block lasts."""
    stop = threading.Event()
    source = Path(__file__).with_name("gpu_kernels.cu").read_text()

    def compile_on(core: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            compiler.compile_source(f"{source}\n// {os.getpid()} {core} {number}\n")

    threads = [
        threading.Thread(target=compile_on, args=(core,), daemon=True)
        for core in range(available_cores())
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(120.0)


def report(rows: Rows) -> bool:
    """Bars and figures from the rows."""
    by = {part: {r["kernel"]: r for r in rows if r["part"] == part} for part in
          ("first", "second", "loaded", "ncu", "cupti")}  # fmt: skip
    first = by["first"]
    truth = {name: by["ncu"][name]["us"] for name in first if name in by["ncu"]}
    for name in first:
        if first[name]["us"] < SHORT_US and name in by["cupti"]:
            truth[name] = by["cupti"][name]["us"]
    errors = {name: abs(first[name]["us"] / us - 1) for name, us in truth.items()}
    bars = [
        bar("kernels timed by our clock and by Nsight or CUPTI", 30, len(errors), len(errors) >= 30)
    ]
    bars.append(_median_bar("error against Nsight (CUPTI below 20 us), median", 0.03, errors))
    near = {n: abs(first[n]["us"] - r["us"]) for n, r in by["cupti"].items()
            if n in first and r["us"] >= 2.0 and first[n]["us"] < SHORT_US}  # fmt: skip
    within = sum(us <= max(0.03 * by["cupti"][n]["us"], 0.15) for n, us in near.items())
    what = "of those from 2 to 20 us, within 3% or 0.15 us of CUPTI"
    bars.append(bar(what, len(near), within, bool(near) and within == len(near)))
    apart = {n: r["at"] - first[n]["at"] for n, r in by["second"].items() if n in first}
    enough = bool(apart) and min(apart.values()) >= APART_S
    agree = {n: abs(r["us"] / first[n]["us"] - 1) for n, r in by["second"].items() if n in first}
    what = "two runs 20 minutes apart" if enough else "two runs (less than 20 minutes apart)"
    bars.append(_median_bar(f"{what}, median difference", 0.015, agree, also=enough))
    loaded = {n: abs(r["us"] / first[n]["us"] - 1) for n, r in by["loaded"].items() if n in first}
    bars.append(_median_bar("with compilers on all cores, median difference", 0.03, loaded))
    worst = max(loaded.values(), default=None)
    figures = {
        "errors": errors_by_length(by),
        "worst_difference_loaded": worst,
        "not_settled": sorted(r["key"] for r in rows if r.get("settled") is False),
        "not_captured": sorted(r["key"] for r in rows if r.get("not_captured")),
        "rows": [
            {k: row[k] for k in ("key", "part", "kernel", "us")}
            for row in sorted(rows, key=lambda r: r["key"])
        ],
    }
    return write_report("gpu_timing", bars, figures)


def errors_by_length(by: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Our clock's errors apart for kernels that take less than 20 us, of which the median over all
    says little: events count what stands around a kernel too."""
    first = {name: row["us"] for name, row in by["first"].items()}

    def against(part: str, names: list[str]) -> dict[str, float]:
        errors = [abs(first[n] / by[part][n]["us"] - 1) for n in names if n in by[part]]
        if not errors:
            return {"kernels": 0}
        median, worst = statistics.median(errors), max(errors)
        return {"kernels": len(errors), "median": median, "worst": worst}

    short = [name for name, us in first.items() if us < SHORT_US]
    longer = [first[n] - by["cupti"][n]["us"] for n in short if n in by["cupti"]]
    return {
        "from_20_us_against_ncu": against("ncu", [n for n in first if n not in short]),
        "below_20_us_against_ncu": against("ncu", short),
        "below_20_us_against_cupti": against("cupti", short),
        "us_longer_than_cupti": sorted(longer),
    }


def _median_bar(
    what: str, target: float, values: dict[str, float], *, also: bool = True
) -> dict[str, Any]:
    if not values:
        return bar(what, target, None, False)
    value = statistics.median(values.values())
    return bar(what, target, value, also and value <= target)


def main() -> int:
    """One part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parts = ("first", "second", "loaded", "report", "cupti-process")
    parser.add_argument("--part", choices=parts, required=True)
    parser.add_argument("--work", type=Path, help="folder of the rows")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    this_gpu()
    if args.part == "cupti-process":
        cupti_process(args.build, args.only, args.answer)
        return 0
    rows, deadline = Rows("gpu_timing", args.work), Deadline(args.minutes)
    if args.part == "report":
        return 0 if report(rows) else 1
    compiler = CUDACompiler()
    folder = build(compiler)
    if args.part == "loaded":
        with compilers_on_all_cores(compiler):
            run_part(rows, "loaded", folder, deadline)
        return 0
    run_part(rows, args.part, folder, deadline)
    if args.part == "first":
        run_ncu(rows, folder, max(60.0, deadline.left_s))
        run_cupti(rows, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
