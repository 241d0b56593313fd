"""One verdict a pair, the right one, whatever is killed.

    uv run python tests/soak/judge_kills.py [--kills 30] [--minutes M] [--sandbox auto] [--seed 0]
                                            [--work DIR]

`judge-many` is disturbed by a SIGKILL at a random point, in turn of the judge, of a device process,
of a sandbox and of a judging process, at which an undisturbed run had such a process; the same
command is run again until it ends well, and every pair must have exactly one verdict, the right
one, with no process and no unfinished build left. A round that ended before its kill is none of the
`--kills`: another one is made.
Where a GPU is visible it judges (`judge_kills.GPU.json`), and "the right one" leaves out what is
measured.

Resumable: rounds are kept in DIR for this judge and these arguments; `--minutes` ends a part in
time. Prints a table, and writes benchmarks/results/judge_kills.json when all kills are made. Exit
0: the bars hold; 1: one does not, or kills are left.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_io import ROOT, bar, finish, head
from gpu_bench import result_path
from judging import (
    PACKAGES,
    facts,
    folder_of,
    fresh_cache,
    honest_pairs,
    hostile_pairs,
    judge_many,
    lines_of,
    words_of,
    write_pairs,
)

from coding_framework.monitoring.progress import Progress
from coding_framework.paths import write_json_atomic
from coding_framework.store.lines import JsonlSink, read_lines

SEED = "7"
LOOK_S = 0.05
"""How often an undisturbed run is looked at for processes to kill."""


def run_silently(command: list[str], environment: dict[str, str]) -> int:
    """Run a command to its end; its exit status."""
    return subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode


def of_judge(family: list[psutil.Process]) -> list[psutil.Process]:
    return family[:1]


def of_device(family: list[psutil.Process]) -> list[psutil.Process]:
    """Forked device processes, children of a fork server, and those that hold a GPU."""
    servers = {p.pid for p in family if "emulator.fork_server" in words_of(p)}
    return [p for p in family if p.ppid() in servers or "cuda.gpu.process" in words_of(p)]


def of_sandbox(family: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if p.name() in ("bwrap", "host_runner", "confine_exec")]


def of_worker(family: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if "cuda.many.worker" in words_of(p)]


VICTIMS: dict[str, Callable[[list[psutil.Process]], list[psutil.Process]]] = {
    "judge": of_judge,
    "device process": of_device,
    "sandbox": of_sandbox,
    "judging process": of_worker,
}


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
    pairs: Path, wanted: dict[str, str], victim: str, delay_s: float, draw: random.Random,
    options: list[str],
) -> dict[str, Any]:  # fmt: skip
    """One disturbed run, and the same command again until it ends well."""
    folder = pairs.parent / "round"
    shutil.rmtree(folder, ignore_errors=True)
    environment = fresh_cache(folder / "cache")
    output = folder / "verdicts.jsonl"
    command = judge_many(pairs, output, "--seed", SEED, *options)
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
        "unfinished": [p.name for p in (folder / "cache" / "builds" / "partial").glob("*")],
        "survivors": [words_of(p) for p in survivors],
        "missing": sorted(set(wanted) - set(ids)),
        "twice": sorted({i for i in ids if ids.count(i) > 1}),
        "other": [line["id"] for line in verdicts if facts(line) != wanted[line["id"]]],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no round after these"
    )
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=ROOT / "outputs" / "judge_kills")
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes
    honest = list(islice(honest_pairs(), 6))
    work = folder_of(args.work, args.sandbox, args.seed, honest)
    work.mkdir(parents=True, exist_ok=True)
    quick = [p for p in hostile_pairs(work) if "endless" not in p["id"]]
    todo = [*honest, *quick[:: max(1, len(quick) // 4)][:4]]
    pairs = work / "pairs.jsonl"
    write_pairs(pairs, todo)
    wanted, seen_s = undisturbed(pairs, len(todo), args.sandbox)
    rows = [json.loads(line) for line in read_lines(work / "rounds.jsonl")]
    with (
        JsonlSink(work / "rounds.jsonl") as sink,
        Progress("kills", args.kills, "kills", done=kills(rows)) as progress,
    ):
        while kills(rows) < args.kills:
            if time.monotonic() > deadline or len(rows) >= 3 * args.kills:
                print("kills are left: run the same command again")
                return 1
            victim = list(VICTIMS)[kills(rows) % len(VICTIMS)]
            draw = random.Random(f"{args.seed} {len(rows)}")
            delay_s, options = draw.choice(seen_s[victim]), ["--sandbox", args.sandbox]
            rows.append(one_kill(pairs, wanted, victim, delay_s, draw, options))
            sink.write(rows[-1])
            note = f"{victim} after {rows[-1]['delay_s']} s"
            progress.advance(int(rows[-1]["killed"]), note=note)
    bars = [
        bar(f"{name}, of {args.kills} kills", 0, count, count == 0)
        for name, count in (
            ("pairs without a verdict", sum(len(r["missing"]) for r in rows)),
            ("pairs with two verdicts", sum(len(r["twice"]) for r in rows)),
            ("pairs with another verdict", sum(len(r["other"]) for r in rows)),
            ("unfinished builds left", sum(len(r["unfinished"]) for r in rows)),
            ("processes that survived", sum(len(r["survivors"]) for r in rows)),
            ("kills that were not made", args.kills - kills(rows)),
        )
    ]
    report = {**head("judge_kills", packages=PACKAGES), "bars": bars, "rounds": rows}
    return 0 if finish(report, result_path("judge_kills")) else 1


def kills(rows: list[dict[str, Any]]) -> int:
    """Rounds that came to their kill."""
    return sum(row["killed"] for row in rows)


def undisturbed(
    pairs: Path, total: int, sandbox: str
) -> tuple[dict[str, str], dict[str, list[float]]]:
    """The right verdicts, and when there is a process of each kind to kill, in seconds from the
    start with an empty cache: of a second run, as the first on a machine also builds our own native
    parts."""
    kept = pairs.with_name("undisturbed.json")
    if not kept.exists():
        folder = pairs.with_name("undisturbed")
        output = folder / "verdicts.jsonl"
        command = judge_many(pairs, output, "--seed", SEED, "--sandbox", sandbox)
        run_silently(command, fresh_cache(folder / "cache"))
        shutil.rmtree(folder, ignore_errors=True)
        seen_s = watched(command, fresh_cache(folder / "cache"))
        facts_of = {line["id"]: facts(line) for line in lines_of(output) if "status" in line}
        if len(facts_of) < total:
            raise SystemExit(f"{total - len(facts_of)} pairs got no verdict: look at {output}")
        if missing := [victim for victim, times in seen_s.items() if not times]:
            raise SystemExit(f"an undisturbed run was never seen with a {missing[0]} to kill")
        write_json_atomic(kept, {"wanted": facts_of, "seen_s": seen_s})
    found = json.loads(kept.read_text())
    return found["wanted"], found["seen_s"]


def watched(command: list[str], environment: dict[str, str]) -> dict[str, list[float]]:
    """Run a command to its end; when it had processes of each kind of victim."""
    seen: dict[str, list[float]] = {victim: [] for victim in VICTIMS}
    started = time.monotonic()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    root = psutil.Process(process.pid)
    while process.poll() is None:
        at = round(time.monotonic() - started, 3)
        for victim, find in VICTIMS.items():
            with suppress(psutil.Error):
                if find([root, *root.children(recursive=True)]):
                    seen[victim].append(at)
        time.sleep(LOOK_S)
    return seen


if __name__ == "__main__":
    sys.exit(main())
