"""The compiler's kernels for folders of modules: how many are written, and judged correct.

    uv run python benchmarks/written_kernels.py FOLDER ... [--backend emulator] [--workers N]
        [--seconds 45] [--level naive|fast] [--work DIR]

A folder's Python files are problems with `Model`, `get_inputs` and `get_init_inputs`, such as
KernelBench's level1 or benchmarks/modules_people_use/set1. Each is read and written in a process of
its own part, for at most --seconds; then the kernels are judged by the whole protocol. --work keeps
tasks, kernels and verdicts, and a second run there judges only what has no verdict. Writes
benchmarks/results/written_kernels.json: by folder the counts by status and the seconds of reading,
and each module that has no correct kernel, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from subprocess import Popen
from tempfile import mkdtemp
from typing import Any

from bench_io import finish, head, this_machine

from coding_framework.commands.judge_many import judge_pairs, read_pairs
from coding_framework.wiring import JudgeSettings


def write_part(files: Sequence[Path], work: Path, seconds: int, level: str, log: Path) -> None:
    """Task, kernel and seconds of each file, a line each in `log`. In the process's main thread, as
    torch.export needs."""
    from coding_framework.data.lower.schedule import levels
    from coding_framework.data.read import read
    from coding_framework.data.registry import find_task

    def late(*_: object) -> None:
        raise TimeoutError(f"not written in {seconds} s")

    signal.signal(signal.SIGALRM, late)
    with log.open("w", encoding="utf-8") as lines:
        for file in files:
            name = f"{file.parent.name}.{file.stem}"
            line: dict[str, Any] = {"id": name}
            signal.alarm(seconds)
            try:
                task = find_task(str(file))
                started = time.monotonic()
                kernels = levels(read(task), task.name)
                line["write_s"] = round(time.monotonic() - started, 2)
                code = kernels[0 if level == "naive" else -1].code
                task = task.model_copy(update={"naive_kernel": kernels[0].code})
                (work / f"{name}.json").write_text(task.model_dump_json(), encoding="utf-8")
                (work / f"{name}.cu").write_text(code, encoding="utf-8")
                line |= {"task": f"{name}.json", "kernel": f"{name}.cu"}
            except Exception as e:  # a module's own code fails in any way
                line["reason"] = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
            finally:
                signal.alarm(0)
            lines.write(json.dumps(line) + "\n")
            lines.flush()


def written(
    folders: Sequence[Path], work: Path, workers: int, seconds: int, level: str
) -> list[Any]:
    """What came of each module of the folders, all of them in `workers` processes."""
    logs = [work / f"written.{part}.jsonl" for part in range(workers)]
    command = [sys.executable, __file__, *map(str, folders), "--work", str(work)]
    command += ["--workers", str(workers), "--seconds", str(seconds), "--level", level, "--part"]
    for each in [Popen([*command, str(part)]) for part in range(workers)]:
        each.wait()
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--backend", default="emulator", choices=("emulator", "cuda"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=int, default=45, help="to read and write a module")
    parser.add_argument("--level", default="naive", choices=("naive", "fast"))
    parser.add_argument("--work", type=Path, help="folder of tasks, kernels and verdicts")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    files = [file for folder in given.folders for file in sorted(folder.glob("*.py"))]
    if given.part is not None:
        log = given.work / f"written.{given.part}.jsonl"
        write_part(files[given.part :: given.workers], given.work, given.seconds, given.level, log)
        return 0
    machine = this_machine()
    work = given.work or Path(mkdtemp(prefix="written-kernels-"))
    work.mkdir(parents=True, exist_ok=True)
    modules = written(given.folders, work, given.workers, given.seconds, given.level)
    pairs = work / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(m) + "\n" for m in modules if "kernel" in m))
    verdicts = work / f"verdicts.{given.backend}.jsonl"
    settings = JudgeSettings(backend=given.backend, workers=given.workers)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # each verdict is in the file
        asyncio.run(judge_pairs(read_pairs(pairs), settings, output=verdicts))
    judged = {v["id"]: v for v in map(json.loads, verdicts.read_text().splitlines())}
    report = head("written_kernels", packages=("torch",), machine=machine)
    finish({**report, "bars": [], **summary(modules, judged)})
    return 0


def summary(modules: Sequence[Any], judged: dict[str, Any]) -> dict[str, Any]:
    """By folder, and the modules without a correct kernel."""
    sets: dict[str, Counter[str]] = {}
    seconds: dict[str, list[float]] = {}
    failures = {}
    for module in modules:
        name = module["id"]
        verdict = judged.get(name, {"reason": module.get("reason", "not judged")})
        status = verdict.get("status", "not written" if "reason" in module else "not judged")
        group = name.split(".")[0]
        sets.setdefault(group, Counter())[status] += 1
        seconds.setdefault(group, []).append(module.get("write_s", 0.0))
        if status != "correct":
            said = verdict.get("reason") or verdict.get("error") or module.get("reason")
            failures[name] = f"{status}: {said}"[:300]
    return {
        "sets": {
            group: {
                "modules": sum(counts.values()),
                **dict(counts.most_common()),
                "write_s_median": round(statistics.median(seconds[group]), 2),
                "write_s_most": max(seconds[group]),
            }
            for group, counts in sorted(sets.items())
        },
        "failures": dict(sorted(failures.items())),
    }


if __name__ == "__main__":
    raise SystemExit(main())
