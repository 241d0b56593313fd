"""The graphs that SFT is shown: which are left out, and whether their kernels are right.

    python benchmarks/graphs.py --problems FOLDER ... [--write-exclusions]
    python benchmarks/graphs.py --judge 0 700 [--pieces] [--backend cuda] [--write]

A graph is left out (`data/graphs/excluded.txt`, by its number) where PyTorch executes for it what
it executes for a problem of the folders, where its source shares 60% of its 8-grams with one, and
where its output hardly varies. Without --write-exclusions it says what the file has not; the exit
status is 1 where that is something. --judge judges the kernels of these numbers on the emulator;
--pieces: those of their pieces; --backend cuda: on a GPU, where how fast they are by the last
operation is told too; --write: the report is benchmarks/results/graphs.json, or graph_pieces.json,
of a GPU graphs.cuda.json and graph_pieces.cuda.json.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Literal

import torch
from bench_io import bar, finish, head
from module_leaks import Problem, grams, overlap, problem_trace, traced
from module_tasks import DRAWS, MOST_OVERLAP, problems_of

from coding_framework.data.graphs.examples import EXCLUDED_PATH, MOST_GRAPHS, drawn_task, graph_task
from coding_framework.data.graphs.pieces import pieces_of
from coding_framework.paths import write_atomic
from coding_framework.types import Task, TensorSpec
from coding_framework.wiring import make_judge


def exclusions(problems: list[Problem]) -> Counter[str]:
    """Number and why, of all graphs."""
    seen = set()
    for problem in problems:
        try:
            seen.add(problem_trace(problem).names)
        except Exception as e:  # whatever a problem raises on the meta device
            print(f"{problem.name} cannot be traced: {type(e).__name__}: {e}", file=sys.stderr)
    own = [grams(problem.source) for problem in problems]
    found: Counter[str] = Counter()
    for number in range(MOST_GRAPHS):
        made = drawn_task(number)
        if made is None:
            continue
        task, mine = made[0], grams(made[0].reference)
        case = task.cases[-1]
        names = Problem(task.name, task.reference).namespace()
        meta = [torch.empty(i.shape, dtype=getattr(torch, i.dtype), device="meta")
                for i in case.inputs]  # fmt: skip
        try:
            trace = traced(names["Model"], case.init_args, meta).names
        except (RuntimeError, ValueError):  # of PyTorch, for an axis of one element
            found[f"{number} cannot be traced"] += 1
            continue
        if trace in seen:
            found[f"{number} is a problem's"] += 1
        elif any(overlap(mine, theirs) >= MOST_OVERLAP for theirs in own):
            found[f"{number} is like a problem's"] += 1
        elif _hardly_varies(task):
            found[f"{number} hardly varies"] += 1
    return found


def _hardly_varies(task: Task) -> bool:
    """Whether a few draws give values within 1% of the largest."""
    case = task.cases[0]
    torch.manual_seed(0)
    with torch.no_grad():
        model = Problem(task.name, task.reference).namespace()["Model"](*case.init_args)
        draws = torch.stack([model(*map(_drawn, case.inputs)) for _ in range(DRAWS)])
    low, high = torch.aminmax(draws)
    near = bool(high - low <= 1e-2 * max(abs(low), abs(high)) + 1e-5)
    return near or not bool(torch.isfinite(draws).all())


def _drawn(given: TensorSpec) -> torch.Tensor:
    if given.dtype == "int64":
        return torch.randint(0, int(given.high or 0) + 1, given.shape)
    drawn = torch.randn(given.shape)
    return drawn > 0 if given.dtype == "bool" else drawn


async def judged(
    first: int, last: int, *, pieces: bool = False, backend: Literal["emulator", "cuda"]
) -> tuple[Counter[str], dict[str, list[float]]]:
    """(statuses of the kernels of these numbers, or of their pieces'; measured speeds over eager of
    the right ones by their last operation)."""
    found: Counter[str] = Counter()
    speeds: dict[str, list[float]] = {}
    with make_judge(backend=backend) as judge:

        async def one(task: Task, code: str) -> None:
            try:
                verdict = await judge.judge(task, code)
                status, reason = str(verdict.status), verdict.reason
                if verdict.timing is not None and verdict.timing.speedup is not None:
                    speeds.setdefault(task.ops[-1], []).append(verdict.timing.speedup)
            except Exception as e:
                status, reason = "no verdict", str(e)
            found[status] += 1
            if status != "correct":
                print(f"{task.name}: {status}: {reason}", file=sys.stderr)

        made = (
            pair
            for number in range(first, last)
            for pair in (pieces_of(number) if pieces else filter(None, [graph_task(number)]))
        )
        await asyncio.gather(*(one(task, kernel.code) for task, kernel in made))
    return found, speeds


def _told(speeds: dict[str, list[float]]) -> dict[str, Any]:
    """Of all kernels, and by operation, the most frequent first: how many, their mean."""
    every = [speed for some in speeds.values() for speed in some]
    rows = {"all": every, **dict(sorted(speeds.items(), key=lambda row: -len(row[1])))}
    return {
        name: {"kernels": len(some), "geometric_mean": round(geometric_mean(some), 3)}
        for name, some in rows.items()
    }


def main() -> int:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--problems", type=Path, nargs="*", default=[], help="folders of problems")
    cli.add_argument("--write-exclusions", action="store_true")
    cli.add_argument("--judge", type=int, nargs=2, metavar=("FIRST", "LAST"))
    cli.add_argument("--pieces", action="store_true")
    cli.add_argument("--backend", choices=("emulator", "cuda"), default="emulator")
    cli.add_argument("--write", action="store_true")
    args = cli.parse_args()
    torch.set_num_threads(1)
    if args.judge:
        found, speeds = asyncio.run(judged(*args.judge, pieces=args.pieces, backend=args.backend))
        total = sum(found.values())
        right = found["correct"] / max(1, total)
        print(dict(found))
        if not args.write:
            return int(right < 0.99)
        name = "graph_pieces" if args.pieces else "graphs"
        report = {
            **head(name + ".cuda" * (args.backend == "cuda"), packages=("torch",)),
            "numbers": args.judge,
            "kernels": total,
            "statuses": dict(found),
            **({"over_eager": _told(speeds)} if speeds else {}),
            "bars": [bar("correct", 0.99, round(right, 4), right >= 0.99)],
        }
        return int(not finish(report))
    lines = list(exclusions(problems_of(args.problems)))
    print(Counter(line.split(" ", 1)[1] for line in lines))
    if args.write_exclusions:
        write_atomic(EXCLUDED_PATH, "".join(f"{line}\n" for line in lines))
        return 0
    known = set(EXCLUDED_PATH.read_text(encoding="utf-8").splitlines())
    new = [line for line in lines if line not in known]
    print("\n".join(new))
    return int(bool(new))


if __name__ == "__main__":
    raise SystemExit(main())
