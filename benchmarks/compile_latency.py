"""How long a kernel takes from source to host code, PTX, cubin and resources, in the sandbox.

    uv run python benchmarks/compile_latency.py [--kernels 40] [--archive FILE.jsonl] [--torch 1]

Kernels are synthesised ones, one of each task in turn, or rows of the kernel archive (`CUDA_Code`).
`--torch N` also compiles N of them against the real torch headers (about 45 s and 3 GB each). Every
compilation starts with an empty cache. Prints a table, writes
benchmarks/results/compile_latency.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_io import at_most, bar, finish, head, this_machine

from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler, KernelCompilationCache
from coding_framework.data.synthesis import catalog

MEDIAN_TARGET_S = 1.5
RATIO_TARGET = 25.0


@dataclass(frozen=True, slots=True)
class Timing:
    """One compilation. Idle machines have wall time near CPU time; loaded ones do not."""

    kernel: str
    wall_s: float
    cpu_s: float
    success: bool


def torch_compiler(cache: KernelCompilationCache) -> CUDACompiler:
    """A compiler against the real headers, with the limits that they need: 3.1 GB were seen."""
    limits = {"cpu_limit_s": 600, "memory_bytes": 24 << 30}
    return CUDACompiler(CompilerConfig(headers="torch", **limits), cache=cache)


def synthesised(count: int) -> list[tuple[str, str]]:
    """Names and sources of `count` kernels, spread over the catalog of tasks."""
    programs = catalog.catalog()
    chosen = []
    for i in range(count):
        task = catalog.build_task(programs[i * len(programs) // count])
        examples = catalog.kernels_of(task.name)
        example = examples[i % len(examples)]
        chosen.append((f"{task.name}/{example.level}", example.code))
    return chosen


def archived(path: Path, count: int) -> list[tuple[str, str]]:
    """Names and sources of `count` rows of the archive, spread over the file."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    picked = [rows[i * len(rows) // count] for i in range(min(count, len(rows)))]
    return [(f"{row['Op_Name']}/{row['Kernel_Name']}", row["CUDA_Code"]) for row in picked]


def compile_all(compiler: CUDACompiler, kernels: Sequence[tuple[str, str]]) -> list[Timing]:
    """Each kernel once, one after the other, nothing cached."""
    timings = []
    for name, code in kernels:
        started = time.perf_counter()
        result = compiler.compile_source(code)
        wall_s = time.perf_counter() - started
        timings.append(Timing(name, wall_s, result.latency_s, result.success))
        print(
            f"\r{len(timings)}/{len(kernels)}  {wall_s:.2f} s  {name:60.60}",
            end="",
            file=sys.stderr,
        )
    print(file=sys.stderr)
    return timings


def compile_with_torch(code: str, folder: Path) -> float:
    """Seconds of the same compilation against the real torch headers, nothing cached. Ends the
    benchmark where they do not accept the kernel."""
    compiler = torch_compiler(cache=KernelCompilationCache(folder))
    started = time.perf_counter()
    result = compiler.compile_source(code)
    if not result.success:
        sys.exit(f"the real torch headers do not compile it: {result.reason}")
    return time.perf_counter() - started


def bars(small: list[Timing], torch_s: list[float]) -> list[dict[str, Any]]:
    """The bars, each held or not."""
    median = statistics.median(t.wall_s for t in small)
    rows = [at_most("median s from source to host code, PTX, cubin", MEDIAN_TARGET_S, median)]
    if torch_s:
        ratio = statistics.median(torch_s) / median
        rows.append(
            bar(
                "times faster than the real torch headers",
                RATIO_TARGET,
                ratio,
                ratio >= RATIO_TARGET,
            )
        )
    return rows


def main() -> int:
    """Parse, measure, print, write; 1 where a bar does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--torch", type=int, default=0, help="kernels to compile with real torch")
    args = parser.parse_args()
    kernels = archived(args.archive, args.kernels) if args.archive else synthesised(args.kernels)
    with tempfile.TemporaryDirectory() as folder:
        compiler = CUDACompiler(cache=KernelCompilationCache(Path(folder)))
        machine = this_machine()
        timings = compile_all(compiler, kernels)
        started = time.perf_counter()
        hits = [compiler.compile_source(code).cache_hit for _, code in kernels]
        hit_s = (time.perf_counter() - started) / len(hits)
    torch_s = []
    for (name, code), timing in zip(kernels, timings, strict=True):
        if len(torch_s) < args.torch and timing.success:
            print(f"against the real torch headers: {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as folder:
                torch_s.append(compile_with_torch(code, Path(folder)))
    good = [t for t in timings if t.success]
    report = {
        **head(
            "compile_latency",
            packages=("torch",),
            machine=machine,
            versions={"nvcc": compiler.toolkit.version, "python": platform.python_version()},
        ),
        "bars": bars(good, torch_s),
        "sandbox": compiler.sandbox.name,
        "kernels": len(timings),
        "compiled": len(good),
        "wall_s": quantiles([t.wall_s for t in good]),
        "cpu_s": quantiles([t.cpu_s for t in good]),
        "cache_hit_s": round(hit_s, 5),
        "torch_headers_s": [round(s, 1) for s in torch_s],
        "timings": [asdict(t) for t in timings],
    }
    for name in ("kernels", "compiled", "wall_s", "cpu_s", "cache_hit_s", "torch_headers_s"):
        print(f"{name:16} {report[name]}")
    return 0 if finish(report) else 1


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Median, 90th percentile and largest."""
    ordered = sorted(values)
    at = [("median", 0.5), ("p90", 0.9), ("max", 1.0)]
    return {name: round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 3) for name, q in at}


if __name__ == "__main__":
    sys.exit(main())
