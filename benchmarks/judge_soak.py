"""Same verdicts under stress, nothing left behind, and one verdict a pair whatever is killed.

    uv run python benchmarks/judge_soak.py [--part sameness|leftovers|kills] [--verdicts 2000]
                                           [--kills 30] [--sandbox auto] [--seed 0] [--work DIR]

sameness: honest and hostile kernels are judged on the idle machine, then under a CPU overload of
four busy processes a core, by 64 callers at once, and with an empty cache as on another day. Every
verdict must be the same but for durations.
leftovers: `judge-many` on so many verdicts, every second of an attack; after it no process, file,
shared-memory segment, mount or container may be left that was not there before.
kills: `judge-many` is disturbed by a SIGKILL at a random point, in turn of the judge, of a device
process, of a sandbox and of a judging process; the same command is run again until it ends well,
and every pair must have exactly one verdict, the right one.

Each part writes its rows to DIR as it goes and takes up there when it is run again. Prints a table,
writes benchmarks/results/judge_soak.json (with --part judge_soak_PART.json); exits 1 where a bar
does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from bench_io import ROOT, bar, finish, head
from judging import (
    PACKAGES,
    fresh_cache,
    honest_pairs,
    hostile_pairs,
    judge_many,
    lines_of,
    write_pairs,
)

from coding_framework.monitoring.jsonl import JsonlSink, read_lines

SEED = "7"
CALLERS = 64
BURNERS_A_CORE = 4
BY_STATUS = {"timeout", "compile_timeout", "nondeterministic"}
"""Their figures may vary: an amount of time, or what a race left behind."""
ADDRESS = re.compile(r"0x[0-9a-f]+")
"""Of a host process, which the kernel places anew each time."""
MARKS = ("bwrap", "host_runner", "nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "container_init")


def facts(verdict: dict[str, Any]) -> str:
    """A verdict without what varies: durations, and whether nvcc had to run."""
    if verdict.get("status") in BY_STATUS:
        return str(verdict["status"])
    kept = ("status", "reason", "tests", "timing", "counters", "cheats")
    return ADDRESS.sub("0x", json.dumps({key: verdict.get(key) for key in kept}, sort_keys=True))


def run_silently(command: list[str], environment: dict[str, str]) -> int:
    """Run a command to its end; its exit status."""
    return subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode


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


def by_command(pairs: Path, output: Path, cache: Path, options: list[str]) -> dict[str, str]:
    """Verdicts of a `judge-many`, which goes on where it was."""
    run_silently(judge_many(pairs, output, "--seed", SEED, *options), fresh_cache(cache))
    return {line["id"]: facts(line) for line in lines_of(output)}


def by_callers(pairs: list[dict[str, str]], sandbox: str) -> dict[str, str]:
    """Verdicts of a pool that has 64 callers at all times, in this process."""
    from coding_framework.cuda.judge import JudgeConfig
    from coding_framework.cuda.pool import JudgePool
    from coding_framework.data.registry import find_task

    limit = asyncio.Semaphore(CALLERS)
    found: dict[str, str] = {}

    async def one(pair: dict[str, str], pool: JudgePool) -> None:
        async with limit:
            verdict = await pool.judge(find_task(pair["task"]), pair["code"])
        found[pair["id"]] = facts(json.loads(verdict.model_dump_json()))

    async def all_of_them() -> None:
        with JudgePool(JudgeConfig(sandbox=sandbox, seed=int(SEED))) as pool:
            await asyncio.gather(*(one(pair, pool) for pair in pairs))

    asyncio.run(all_of_them())
    return found


def sameness(args: argparse.Namespace, work: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    work.mkdir(parents=True, exist_ok=True)
    todo = [*islice(honest_pairs(), args.verdicts // 20), *hostile_pairs(work)]
    pairs = work / "pairs.jsonl"
    write_pairs(pairs, todo)
    options = ["--sandbox", args.sandbox]
    idle = by_command(pairs, work / "idle.jsonl", work / "cache", options)
    rows = {"another day, nothing cached": by_command(
        pairs, work / "day.jsonl", work / "other_cache", options
    )}  # fmt: skip
    with overload():
        rows["4x CPU overload"] = by_command(pairs, work / "loaded.jsonl", work / "cache", options)
    rows[f"{CALLERS} callers at once"] = by_callers(todo, args.sandbox)
    bars, raw = [], {}
    for name, found in rows.items():
        other = [i for i, fact in idle.items() if found.get(i) != fact]
        bars.append(bar(f"verdicts that differ: {name}, of {len(todo)}", 0, len(other), not other))
        raw[name] = {"differ": other[:20], "judged": len(found)}
    return bars, {"sameness": raw}


# --- leftovers ------------------------------------------------------------------------------------


def traces(temporary: Path, cache: Path) -> dict[str, set[str]]:
    """What a judge could leave on this machine."""
    processes = set()
    for process in psutil.process_iter(["name", "cmdline", "create_time"]):
        words = " ".join(process.info["cmdline"] or ())
        ours = process.info["name"] in MARKS or str(cache) in words or "coding_framework" in words
        if ours and process.pid != os.getpid():
            processes.add(f"{process.pid} {words[:120]}")
    return {
        "processes": processes,
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


def leftovers(args: argparse.Namespace, work: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    work.mkdir(parents=True, exist_ok=True)
    temporary = work / "tmp"
    temporary.mkdir(exist_ok=True)
    attacks = hostile_pairs(work)
    honest = list(islice(honest_pairs(), args.verdicts // 2))
    todo = []
    for i in range(args.verdicts):  # each attack many times, and no two with the same source
        pair = honest[i // 2 % len(honest)] if i % 2 else attacks[i // 2 % len(attacks)]
        todo.append({**pair, "id": f"{i} {pair['id']}", "code": f"{pair['code']}\n// {i}"})
    write_pairs(work / "pairs.jsonl", todo)
    environment = {**fresh_cache(work / "cache"), "TMPDIR": str(temporary)}
    before = traces(temporary, work / "cache")
    output = work / "verdicts.jsonl"
    command = judge_many(work / "pairs.jsonl", output, "--sandbox", args.sandbox)
    with (work / "log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        while process.poll() is None:
            time.sleep(5)
            print(f"\rleftovers: {len(lines_of(output))}/{len(todo)}  ", end="", file=sys.stderr)
    print(file=sys.stderr)
    after = traces(temporary, work / "cache")
    left = {kind: sorted(after[kind] - before[kind]) for kind in before}
    lines = lines_of(output)
    judged = sum("status" in line for line in lines)
    passed = [
        x["id"]
        for x in lines
        if "/attack" in f"/{x['id'].split()[1]}" and x.get("status") == "correct"
    ]
    bars = [
        bar(f"{kind} left after {judged} verdicts", 0, len(what), not what)
        for kind, what in left.items()
    ]
    bars.append(bar("pairs without a verdict", 0, len(todo) - judged, judged == len(todo)))
    bars.append(bar("attacks that passed", 0, len(passed), not passed))
    return bars, {"leftovers": {k: v[:20] for k, v in left.items()}}


# --- kills ----------------------------------------------------------------------------------------


def of_judge(family: list[psutil.Process]) -> list[psutil.Process]:
    return family[:1]


def of_device(family: list[psutil.Process]) -> list[psutil.Process]:
    """Forked device processes: children of a fork server."""
    servers = {p.pid for p in family if "emulator.zygote" in _words(p)}
    return [p for p in family if p.ppid() in servers]


def of_sandbox(family: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if p.name() in ("bwrap", "host_runner", "confine_exec")]


def of_worker(family: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if "pool_worker" in _words(p)]


VICTIMS: dict[str, Callable[[list[psutil.Process]], list[psutil.Process]]] = {
    "judge": of_judge,
    "device process": of_device,
    "sandbox": of_sandbox,
    "judging process": of_worker,
}


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill_one(process: subprocess.Popen[bytes], victim: str, draw: random.Random) -> bool:
    """SIGKILL a random victim of that kind as soon as there is one; False where the command ended
    first."""
    while process.poll() is None:
        with suppress(psutil.Error):
            root = psutil.Process(process.pid)
            found = VICTIMS[victim]([root, *root.children(recursive=True)])
            if found:
                draw.choice(found).kill()
                return True
        time.sleep(0.002)
    return False


def one_kill(
    pairs: Path, wanted: dict[str, str], victim: str, length_s: float, draw: random.Random,
    options: list[str],
) -> dict[str, Any]:  # fmt: skip
    """One disturbed run, and the same command again until it ends well."""
    folder = pairs.parent / "round"
    shutil.rmtree(folder, ignore_errors=True)
    environment = fresh_cache(folder / "cache")
    output = folder / "verdicts.jsonl"
    command = judge_many(pairs, output, "--seed", SEED, *options)
    delay_s = draw.uniform(0.0, length_s)
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    family = []
    with suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    killed = kill_one(process, victim, draw)
    process.wait()
    _, survivors = psutil.wait_procs(family, timeout=30)
    kept = sum("status" in line for line in lines_of(output))
    runs = 0
    while runs < 4:
        runs += 1
        if run_silently(command, environment) == 0:
            break
    verdicts = [line for line in lines_of(output) if "status" in line]
    ids = [line["id"] for line in verdicts]
    return {
        "victim": victim,
        "killed": killed,
        "delay_s": round(delay_s, 2),
        "kept": kept,
        "runs_after": runs,
        "survivors": [_words(p) for p in survivors],
        "missing": sorted(set(wanted) - set(ids)),
        "twice": sorted({i for i in ids if ids.count(i) > 1}),
        "other": [line["id"] for line in verdicts if facts(line) != wanted[line["id"]]],
    }


def kills(args: argparse.Namespace, work: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    work.mkdir(parents=True, exist_ok=True)
    quick = [p for p in hostile_pairs(work) if "endless" not in p["id"]]
    todo = [*islice(honest_pairs(), 10), *quick[:: max(1, len(quick) // 6)]]
    pairs = work / "pairs.jsonl"
    write_pairs(pairs, todo)
    options = ["--sandbox", args.sandbox]
    started = time.monotonic()
    shutil.rmtree(work / "undisturbed", ignore_errors=True)
    wanted = by_command(
        pairs, work / "undisturbed" / "v.jsonl", work / "undisturbed" / "c", options
    )
    length_s = time.monotonic() - started
    rows = [json.loads(line) for line in read_lines(work / "rounds.jsonl")]
    with JsonlSink(work / "rounds.jsonl") as sink:
        for i in range(len(rows), args.kills):
            victim = list(VICTIMS)[i % len(VICTIMS)]
            draw = random.Random(f"{args.seed} {i}")
            rows.append(one_kill(pairs, wanted, victim, length_s, draw, options))
            sink.write(rows[-1])
            print(f"kill {i + 1}/{args.kills}: {json.dumps(rows[-1])[:200]}", file=sys.stderr)
    bars = [
        bar(f"{name}, of {len(rows)} kills", 0, count, count == 0)
        for name, count in (
            ("pairs without a verdict", sum(len(r["missing"]) for r in rows)),
            ("pairs with two verdicts", sum(len(r["twice"]) for r in rows)),
            ("pairs with another verdict", sum(len(r["other"]) for r in rows)),
            ("processes that survived", sum(len(r["survivors"]) for r in rows)),
            ("rounds that ended before the kill", sum(not r["killed"] for r in rows)),
        )
    ]
    return bars, {"kills": rows}


PARTS = {"sameness": sameness, "leftovers": leftovers, "kills": kills}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--verdicts", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=ROOT / "outputs" / "judge_soak")
    args = parser.parse_args()
    bars, raw = [], {}
    for name in args.part or PARTS:
        more, rows = PARTS[name](args, args.work / name)
        bars += more
        raw.update(rows)
    name = "judge_soak" if not args.part else f"judge_soak_{'_'.join(args.part)}"
    report = {**head(name, packages=PACKAGES), "bars": bars, **raw}
    return 0 if finish(report) else 1


if __name__ == "__main__":
    sys.exit(main())
