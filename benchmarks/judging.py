"""What the judge's benchmarks share: pairs to judge, the command that judges them, and a look at it
while it works, in parts that go on where the last one ended."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from bench_io import ROOT

from coding_framework.cuda.protocol import judge_digest
from coding_framework.data.kernels import kernels_of
from coding_framework.data.synthesis import catalog
from coding_framework.monitoring.memory import resident_bytes
from coding_framework.monitoring.progress import Progress
from coding_framework.paths import cache_dir
from coding_framework.store.lines import JsonlSink
from coding_framework.types import Task

PACKAGES = ("torch", "nvidia-cuda-nvcc")
"""Of which a report of judging tells the versions."""
sys.path.insert(0, str(ROOT / "tests"))

LOOK_S = 5.0
END_S = 60.0

BY_STATUS = {"timeout", "compile_timeout", "nondeterministic"}
"""Their figures may vary: an amount of time, or what a race left behind."""
ADDRESS = re.compile(r"0x[0-9a-f]+")
"""Of a host process, which the kernel places anew each time."""

Pair = dict[str, str]
"""A line of a `judge-many` file."""


def honest_pairs() -> Iterator[Pair]:
    """Every synthesised kernel once, the tasks in turn: no two have the same source."""
    tasks = [catalog.build_task(program) for program in catalog.catalog()]
    seen: set[str] = set()
    level = 0
    while True:
        found = False
        for task in tasks:
            kernels = kernels_of(task)
            if level < len(kernels):
                found = True
                if kernels[level].code not in seen:
                    seen.add(kernels[level].code)
                    yield {
                        "id": f"{task.name}/{level}",
                        "task": task.name,
                        "code": kernels[level].code,
                    }
        if not found:
            return
        level += 1


def hostile_pairs(folder: Path) -> list[Pair]:
    """The attacks of the tests. Their tasks are written to `folder`."""
    from corpus.judge_attacks import ATTACKS

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
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    native, ours = folder / "native", cache_dir() / "native"
    ours.mkdir(parents=True, exist_ok=True)
    if not native.exists():
        native.symlink_to(ours)
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


def judged_in(output: Path) -> set[str]:
    """Ids that have a verdict."""
    return {line["id"] for line in lines_of(output) if "status" in line}


def facts(verdict: dict[str, Any]) -> str:
    """A verdict without what varies: durations, whether nvcc had to run, what a GPU measured."""
    if verdict.get("status") in BY_STATUS:
        return str(verdict["status"])
    kept = ["status", "reason", "tests", "cheats"]
    if verdict.get("backend") != "cuda":
        kept += ["timing", "counters"]
    return ADDRESS.sub("0x", json.dumps({key: verdict.get(key) for key in kept}, sort_keys=True))


def words_of(process: psutil.Process) -> str:
    """Its command line; "" where it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def folder_of(work: Path, *what: object) -> Path:
    """Where the results of this judge on that work are kept: of another one nothing is taken.
    Absolute: a path inside a file of pairs is relative to that file."""
    attacks = (ROOT / "tests" / "corpus" / "judge_attacks.py").read_bytes()
    key = hashlib.sha256(repr((judge_digest(), attacks, *what)).encode()).hexdigest()[:12]
    return (work / key).absolute()


def watch(
    label: str,
    command: list[str],
    output: Path,
    total: int,
    *,
    environment: Mapping[str, str],
    samples: Path,
    deadline: float,
) -> int | None:
    """Run `judge-many`, and write down verdicts and memory (of all its processes, shared pages
    once) every 5 seconds. At the deadline (time.monotonic) it is told to end. Gives its exit
    status, None where it had to end."""
    segment = f"{os.getpid()}-{time.time():.0f}"
    before = len(judged_in(output))
    with (
        JsonlSink(samples) as sink,
        samples.with_suffix(".log").open("ab") as log,
        Progress(label, total, "verdicts", done=before) as progress,
    ):
        started = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=log, env=dict(environment)
        )
        status = None
        ended = False
        while not ended:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(max(0.1, min(LOOK_S, deadline - time.monotonic())))
                ended = True
            sample = {
                "segment": segment,
                "s": round(time.monotonic() - started, 2),
                "verdicts": len(judged_in(output)),
                "before": before,
                "mib": None if ended else _resident_mib(process.pid),
            }
            sink.write(sample)
            progress.update(sample["verdicts"])
            if not ended and time.monotonic() >= deadline:
                process.send_signal(signal.SIGINT)
                process.wait(END_S)
                return None
    return status


def _resident_mib(pid: int) -> int | None:
    try:
        return resident_bytes(psutil.Process(pid)) >> 20
    except psutil.Error:
        return None
