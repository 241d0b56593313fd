"""Loading: a training batch, the archive's rows, KernelBench problems, bad rows.

    uv run python benchmarks/data_loading.py [--archive FILE] [--kernelbench FILE]

Generates a file of 30,615 rows of the archive's schema and streams it in a process of its own,
whose peak memory is read at its end. --archive: true rows of the archive, whose outcomes are
counted. --kernelbench: JSON lines of problems, of which every one is to load. Prints a table,
writes benchmarks/results/data_loading.json.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_io import at_most, finish, head

from coding_framework.data.archive_rows import LoadReport, read_rows
from coding_framework.data.data_pipeline import CUDADataPipeline, DataPipelineConfig
from coding_framework.data.kernelbench.problems import load_problem_rows

ARCHIVE_ROWS = 30_615
BATCH_TARGET_MS = 20.0
MEMORY_TARGET_MB = 500.0
MODULE = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(16, 16384)]

def get_init_inputs():
    return []
"""


def batch_ms(batches: int = 200) -> dict[str, float]:
    """Milliseconds of `get_training_batch` at the default batch size, after the first one."""
    started = time.perf_counter()
    pipeline = CUDADataPipeline(DataPipelineConfig())
    opened_s = time.perf_counter() - started
    pipeline.get_training_batch()
    taken = []
    for _ in range(batches):
        started = time.perf_counter()
        pipeline.get_training_batch()
        taken.append(1e3 * (time.perf_counter() - started))
    return {
        "open_s": round(opened_s, 2),
        "median_ms": round(statistics.median(taken), 3),
        "max_ms": round(max(taken), 3),
    }


def write_archive(path: Path, rows: int) -> None:
    """Rows of the archive's 19 columns, with kernels and logs of its usual lengths."""
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            outcome = rng.choices(("correct", "mismatched", "failed"), (78, 13, 11))[0]
            good = outcome == "correct"
            row = {
                "Op_Name": f"{i % 240}_Op",
                "Level_ID": 1 + i % 3,
                "Task_ID": i % 100,
                "Kernel_Name": f"kernel_{i}",
                "CUDA_Runtime": 0.02 if good else None,
                "PyTorch_Native_Runtime": 0.03,
                "PyTorch_Compile_Runtime": 0.03,
                "CUDA_Speedup_Native": 1.5 if good else 0.0,
                "CUDA_Speedup_Compile": 1.5 if good else 0.0,
                "CUDA_Code": f"// kernel {i}\n" + "float value = 0.0f;\n" * rng.randint(50, 600),
                "PyTorch_Code_Module": MODULE,
                "PyTorch_Code_Functional": MODULE,
                "Correct": good,
                "Max_Diff": None if outcome == "failed" else 0.0,
                "Error": "ninja: build stopped. " * 100 if outcome == "failed" else None,
                "NCU_Profile": "{'metrics': {}}" * 100 if good else None,
                "Torch_Profile": None,
                "Clang_Tidy": "{'stdout': ''}" * 50 if good else None,
                "__index_level_0__": i,
            }
            file.write(json.dumps(row) + "\n")


_STREAM = """
import json, resource, sys
from coding_framework.data.archive_rows import LoadReport, read_rows
report = LoadReport()
characters = sum(len(row.code) for row in read_rows(sys.argv[1], report))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"rows": report.loaded, "characters": characters, "peak_mb": peak}))
"""


def stream_archive() -> dict[str, Any]:
    """Peak memory and time of reading all rows in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="archive_") as folder:
        path = Path(folder) / "rows.jsonl"
        write_archive(path, ARCHIVE_ROWS)
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", _STREAM, str(path)], capture_output=True, text=True, check=True
        )
        wall_s = time.perf_counter() - started
        found = json.loads(done.stdout)
        return {**found, "file_mb": round(path.stat().st_size / 2**20), "wall_s": round(wall_s, 1)}


def figures(archive: Path | None, kernelbench: Path | None) -> dict[str, Any]:
    batch, stream = batch_ms(), stream_archive()
    bars = [
        at_most("ms of a training batch, slowest of 200", BATCH_TARGET_MS, batch["max_ms"]),
        at_most("MB to stream 30,615 rows, peak", MEMORY_TARGET_MB, stream["peak_mb"]),
    ]
    extra: dict[str, Any] = {}
    if archive is not None:
        report = LoadReport()
        rows = sum(1 for _ in read_rows(archive, report))
        extra["archive"] = {"rows": rows, "outcomes": dict(report.outcomes),
                            "skipped": dict(report.skipped)}  # fmt: skip
    if kernelbench is not None:
        given = len(kernelbench.read_bytes().splitlines())
        loaded = sum(1 for _ in load_problem_rows(kernelbench))
        extra["kernelbench"] = {"given": given, "loaded": loaded}
        bars.append(at_most("KernelBench problems that do not load", 0, given - loaded))
    return {
        **head("data_loading"),
        "bars": bars,
        "batch": batch,
        "stream": stream,
        **extra,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    found = figures(args.archive, args.kernelbench)
    for name in ("archive", "kernelbench", "batch", "stream"):
        if name in found:
            print(f"{name}: {found[name]}")
    return 0 if finish(found, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
