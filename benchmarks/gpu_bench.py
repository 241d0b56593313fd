"""What the benchmarks on a GPU share: rows that survive a stop, a deadline, a report's name."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_io import RESULTS, ROOT, finish, head

from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.cuda.device.gpu_sharing import Gpu, gpus
from coding_framework.store.lines import JsonlSink, read_lines

PACKAGES = ("torch", "cuda-bindings", "numpy")
Row = dict[str, Any]


def this_gpu() -> Gpu:
    """The first GPU that may be used. Exits where there is none."""
    found = gpus()
    if not found:
        raise SystemExit("this benchmark needs an NVIDIA GPU, and none is visible here")
    return found[0]


def short_name(gpu: str) -> str:
    """ "NVIDIA H200" -> "h200", "NVIDIA H100 80GB HBM3" -> "h100"."""
    name = re.sub(r"[ -]\d+GB.*", "", gpu.removeprefix("NVIDIA ").removeprefix("GeForce "))
    return name.replace(" ", "_").lower()


def result_path(name: str) -> Path:
    """Where a report on judging goes: NAME.json, and NAME.GPU.json where a GPU judges."""
    on_gpu = choose_backend("auto") == "cuda"
    return RESULTS / (f"{name}.{short_name(this_gpu().name)}.json" if on_gpu else f"{name}.json")


class Rows:
    """Rows of a benchmark by key, in a file that each run goes on with."""

    def __init__(self, name: str, work: Path | None) -> None:
        """work: folder of the rows; None: runs/NAME in this repository."""
        self.folder = work or ROOT / "runs" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / "rows.jsonl"
        self._rows: dict[str, Row] = {}
        for line in read_lines(self._path) if self._path.exists() else ():
            row = json.loads(line)
            self._rows[row["key"]] = row

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def add(self, key: str, row: Row) -> None:
        """Keep a row; a later one of the same key takes its place."""
        self._rows[key] = {"key": key, "at": time.time(), **row}
        with JsonlSink(self._path) as sink:
            sink.write(self._rows[key])


def session_here(name: str) -> Row:
    """What a report says of the session that measured: when, where, on which GPU."""
    gpu = this_gpu()
    return {
        **head(name, packages=PACKAGES, versions={"driver": gpu.driver, "gpu": gpu.name}),
        "gpu": {"name": gpu.name, "memory_bytes": gpu.memory_bytes},
    }


def write_report(
    name: str, bars: list[dict[str, Any]], figures: Row, session: Row | None = None
) -> bool:
    """The report of a GPU as benchmarks/results/NAME.GPU.json; whether all bars hold. session: the
    one that measured, where it is not this one."""
    report = {**(session or session_here(name)), "bars": bars, **figures}
    return finish(report, RESULTS / f"{name}.{short_name(report['gpu']['name'])}.json")
