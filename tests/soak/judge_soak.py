"""Same verdicts under stress; memory that stays, and nothing left behind.

    uv run python tests/soak/judge_soak.py [--part sameness|endurance] [--verdicts 2000]
                                           [--minutes M] [--sandbox auto] [--work DIR]

sameness: honest and hostile kernels are judged on the idle machine with an empty cache; then, with
what that day left in the cache, under a CPU overload of four busy processes a core; then by 64
callers at once. Every verdict must be the same but for durations.
endurance: `judge-many` on so many verdicts, every second of an attack, each kernel several times
(compiled once: judge_throughput.py measures compiling). Its memory must stay, and after it no
process, file, shared-memory segment, mount or container may be left that was not there before.

Resumable: each part keeps what it has in DIR, for this judge and these arguments, and goes on there
when it is run again; `--minutes` ends it in time. Memory is that of the longest run of one process,
so endurance wants one run. Prints a table, and writes benchmarks/results/judge_soak.json of both
parts or of the one that is finished. Exit 0: the bars hold; 1: one does not, or a part that was
asked for is not finished.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_io import ROOT, bar, finish, head, this_machine
from judging import (
    PACKAGES,
    Pair,
    facts,
    folder_of,
    fresh_cache,
    honest_pairs,
    hostile_pairs,
    judge_many,
    judged_in,
    lines_of,
    watch,
    words_of,
    write_pairs,
)

from coding_framework.monitoring.progress import Progress
from coding_framework.paths import write_json_atomic
from coding_framework.store.lines import JsonlSink, read_lines

SEED = "7"
CALLERS = 64
BURNERS_A_CORE = 4
GROWTH = 0.05
"""Most that memory may grow, last quarter of the samples over the second."""
_PR_SET_CHILD_SUBREAPER = 36

Found = tuple[list[dict[str, Any]], dict[str, Any]]
"""Bars and raw results of a part."""


# --- sameness -------------------------------------------------------------------------------------


@contextmanager
def overload() -> Iterator[None]:
    count = BURNERS_A_CORE * len(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def by_command(
    label: str, pairs: Path, total: int, args: argparse.Namespace, cache: Path
) -> dict[str, str]:
    """Verdicts of a `judge-many`, which goes on where it was."""
    output = pairs.with_name(f"{label.replace(' ', '_')}.jsonl")
    if len(judged_in(output)) < total:
        watch(
            label,
            judge_many(pairs, output, "--seed", SEED, "--sandbox", args.sandbox),
            output,
            total,
            environment=fresh_cache(cache),
            samples=output.with_suffix(".samples.jsonl"),
            deadline=args.deadline,
        )
    return {line["id"]: facts(line) for line in lines_of(output) if "status" in line}


def by_callers(
    todo: list[Pair], kept: Path, args: argparse.Namespace, cache: Path
) -> dict[str, str]:
    """Verdicts of a pool that has 64 callers at all times, in this process."""
    from coding_framework.cuda.judge import JudgeConfig
    from coding_framework.cuda.many.pool import JudgePool
    from coding_framework.data.registry import find_task

    found: dict[str, str] = dict(json.loads(line) for line in read_lines(kept))
    left = [pair for pair in todo if pair["id"] not in found]
    limit = asyncio.Semaphore(CALLERS)
    os.environ |= fresh_cache(cache)

    async def all_of_them() -> None:
        with (
            JsonlSink(kept) as sink,
            Progress(f"{CALLERS} callers", len(todo), "verdicts", done=len(found)) as progress,
            JudgePool(JudgeConfig(sandbox=args.sandbox, seed=int(SEED))) as pool,
        ):

            async def one(pair: Pair) -> None:
                async with limit:
                    if time.monotonic() > args.deadline:
                        return
                    verdict = await pool.judge(find_task(pair["task"]), pair["code"])
                found[pair["id"]] = facts(json.loads(verdict.model_dump_json()))
                sink.write([pair["id"], found[pair["id"]]])
                progress.advance()

            await asyncio.gather(*(one(pair) for pair in left))

    if left:
        asyncio.run(all_of_them())
    return found


def sameness(args: argparse.Namespace, work: Path) -> Found | None:
    honest = list(islice(honest_pairs(), args.verdicts // 20))
    work = folder_of(work, args.sandbox, honest)
    work.mkdir(parents=True, exist_ok=True)
    todo = [*honest, *hostile_pairs(work)[: len(honest)]]
    pairs, cache, total = work / "pairs.jsonl", work / "cache", len(todo)
    write_pairs(pairs, todo)
    idle = by_command("idle, empty cache", pairs, total, args, cache)
    if len(idle) < total:
        return None
    rows = {}
    with overload():
        rows["4x CPU overload, yesterday's cache"] = by_command(
            "overloaded", pairs, total, args, cache
        )
    if time.monotonic() < args.deadline:
        name = f"{CALLERS} callers at once, yesterday's cache"
        rows[name] = by_callers(todo, work / "callers.jsonl", args, cache)
    if len(rows) < 2 or any(len(found) < total for found in rows.values()):
        return None
    bars, raw = [], {}
    for name, found in rows.items():
        other = [i for i, fact in idle.items() if found.get(i) != fact]
        bars.append(bar(f"verdicts that differ: {name}, of {total}", 0, len(other), not other))
        raw[name] = {"differ": other[:20], "judged": len(found)}
    return bars, raw


# --- endurance ------------------------------------------------------------------------------------


def traces(temporary: Path, cache: Path) -> dict[str, set[str]]:
    """What a judge could leave on this machine. Processes: orphans are handed to this one."""
    children = psutil.Process().children(recursive=True)
    return {
        "processes": {f"{p.pid} {words_of(p)[:120]}" for p in children},
        "temporary files": {str(path) for path in temporary.rglob("*")},
        "unfinished builds": {str(path) for path in (cache / "builds" / "partial").glob("*")},
        "shared memory": {str(path) for path in Path("/dev/shm").rglob("*")} | _system_v(),
        "mounts": set(Path("/proc/self/mounts").read_text().splitlines()),
        "containers": _containers(),
    }


def _system_v() -> set[str]:
    found = set()
    for kind in ("shm", "sem", "msg"):
        with suppress(OSError):
            found |= {f"{kind} {x}" for x in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()}
    return found


def _containers() -> set[str]:
    import docker

    try:
        listed = docker.from_env(timeout=10).containers.list(all=True)
    except docker.errors.DockerException:
        return set()
    return {str(container.id) for container in listed}


def honest_mix(verdicts: int) -> list[Pair]:
    return list(islice(honest_pairs(), max(1, verdicts // 8)))


def mixed_pairs(verdicts: int, folder: Path) -> list[Pair]:
    """Attacks and honest kernels in turn, each of them several times."""
    attacks = hostile_pairs(folder)
    honest = honest_mix(verdicts)
    todo = []
    for i in range(verdicts):
        pair = honest[i // 2 % len(honest)] if i % 2 else attacks[i // 2 % len(attacks)]
        todo.append({**pair, "id": f"{i} {pair['id']}"})
    return todo


def endurance(args: argparse.Namespace, work: Path) -> Found | None:
    work = folder_of(work, args.sandbox, honest_mix(args.verdicts), args.verdicts)
    temporary, cache, output = work / "tmp", work / "cache", work / "verdicts.jsonl"
    temporary.mkdir(parents=True, exist_ok=True)
    todo = mixed_pairs(args.verdicts, work)
    write_pairs(work / "pairs.jsonl", todo)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if len(judged_in(output)) < len(todo):
        environment = {**fresh_cache(cache), "TMPDIR": str(temporary)}
        before = traces(temporary, cache)
        watch(
            "endurance",
            judge_many(work / "pairs.jsonl", output, "--sandbox", args.sandbox),
            output,
            len(todo),
            environment=environment,
            samples=work / "samples.jsonl",
            deadline=args.deadline,
        )
        psutil.wait_procs(psutil.Process().children(recursive=True), timeout=20)
        after = traces(temporary, cache)
        with JsonlSink(work / "left.jsonl") as sink:
            sink.write({kind: sorted(after[kind] - before[kind]) for kind in before})
    if len(judged_in(output)) < len(todo):
        return None
    return endurance_report(work, lines_of(output))


def endurance_report(work: Path, lines: list[dict[str, Any]]) -> Found:
    left: dict[str, list[str]] = {}
    for line in read_lines(work / "left.jsonl"):
        for kind, what in json.loads(line).items():
            left.setdefault(kind, []).extend(what)
    verdicts = [line for line in lines if "status" in line]
    passed = [x["id"] for x in verdicts if " attack/" in x["id"] and x["status"] == "correct"]
    memory = memory_growth([json.loads(line) for line in read_lines(work / "samples.jsonl")])
    bars = [
        bar(f"{kind} left after {len(verdicts)} verdicts", 0, len(what), not what)
        for kind, what in left.items()
    ]
    bars.append(bar("attacks that passed", 0, len(passed), not passed))
    bars.append(
        bar(
            f"growth of memory over {memory['verdicts']} verdicts of one process",
            GROWTH,
            memory["growth"],
            memory["growth"] <= GROWTH,
        )
    )
    statuses = dict(Counter(line["status"] for line in verdicts))
    return bars, {"left": left, "statuses": statuses, "memory": memory}


def memory_growth(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Median memory of the last quarter over that of the second, of the longest segment: in the
    first quarter caches of bounded size fill."""
    segments = Counter(s["segment"] for s in samples)
    longest = [s for s in samples if s["segment"] == max(segments, key=lambda x: segments[x])]
    seen = [s["mib"] for s in longest if s["mib"]]
    quarter = len(seen) // 4
    if quarter < 2:
        raise SystemExit("too few looks at the memory to say whether it grows: judge more")
    early = statistics.median(seen[quarter : 2 * quarter])
    late = statistics.median(seen[-quarter:])
    return {
        "early_mib": early,
        "late_mib": late,
        "growth": round(late / early - 1, 4),
        "verdicts": longest[-1]["verdicts"] - longest[-1]["before"],
        "mib": seen[:: max(1, len(seen) // 100)],
    }


PARTS: Mapping[str, Callable[[argparse.Namespace, Path], Found | None]] = {
    "sameness": sameness,
    "endurance": endurance,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--verdicts", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end in time, unfinished")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--work", type=Path, default=ROOT / "outputs" / "judge_soak")
    args = parser.parse_args()
    args.deadline = time.monotonic() + 60 * args.minutes
    kept = folder_of(args.work, args.verdicts, args.sandbox)
    unfinished = []
    for name in args.part or PARTS:
        machine = this_machine()
        found = PARTS[name](args, args.work / name)
        if found is None:
            unfinished.append(name)
            continue
        bars, raw = found
        write_json_atomic(kept / f"{name}.json", {"bars": bars, "machine": machine, **raw})
    parts = {
        name: json.loads((kept / f"{name}.json").read_text())
        for name in PARTS
        if (kept / f"{name}.json").exists()
    }
    bars = [one for part in parts.values() for one in part.pop("bars")]
    report = {**head("judge_soak", packages=PACKAGES), "bars": bars, **parts}
    holds = finish(report) if parts else True
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}; run the same command again")
    return 0 if holds and not unfinished else 1


if __name__ == "__main__":
    sys.exit(main())
