"""What the judge's benchmarks share: pairs to judge, the command that judges them, the report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_io import ROOT

from coding_framework.data.synthesis import catalog
from coding_framework.paths import cache_dir
from coding_framework.types import Task

PACKAGES = ("torch", "nvidia-cuda-nvcc")
"""Of which a report of judging tells the versions."""
sys.path.insert(0, str(ROOT / "tests" / "integration"))

Pair = dict[str, str]
"""A line of a `judge-many` file."""


def honest_pairs() -> Iterator[Pair]:
    """Every synthesised kernel once, the tasks in turn: no two have the same source."""
    tasks = [catalog.build_task(program).name for program in catalog.catalog()]
    seen: set[str] = set()
    level = 0
    while True:
        found = False
        for task in tasks:
            kernels = catalog.kernels_of(task)
            if level < len(kernels):
                found = True
                if kernels[level].code not in seen:
                    seen.add(kernels[level].code)
                    yield {"id": f"{task}/{level}", "task": task, "code": kernels[level].code}
        if not found:
            return
        level += 1


def hostile_pairs(folder: Path) -> list[Pair]:
    """The attacks of the tests. Their tasks are written to `folder`."""
    from judge_attacks import ATTACKS

    return [
        {"id": f"attack/{a.name}", "task": _task_file(folder, a.task), "code": a.code}
        for a in ATTACKS
    ]


def _task_file(folder: Path, task: Task) -> str:
    path = folder / f"{task.name}.json"
    path.write_text(task.model_dump_json())
    return str(path)


def write_pairs(path: Path, pairs: Sequence[Mapping[str, str]]) -> None:
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))


def judge_many(pairs: Path, output: Path, *options: str) -> list[str]:
    """The command."""
    command = [sys.executable, "-m", "coding_framework.cli", "judge-many"]
    return [*command, "--tasks-and-kernels", str(pairs), "--output", str(output), *options]


def fresh_cache(folder: Path) -> dict[str, str]:
    """An environment with an empty cache, but for our own native parts: they are built once a
    machine, and are nothing that a verdict rests on."""
    folder.mkdir(parents=True, exist_ok=True)
    native = folder / "native"
    if not native.exists():
        native.symlink_to(cache_dir() / "native")
    return {**os.environ, "CUDA_RL_CACHE": str(folder)}


def lines_of(output: Path) -> list[dict[str, Any]]:
    """The finished lines of an output file."""
    if not output.exists():
        return []
    found = []
    for line in output.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            found.append(json.loads(line))
    return found
