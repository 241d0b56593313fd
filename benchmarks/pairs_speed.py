"""How much faster the optimised kernels are than the naive ones.

    uv run python benchmarks/pairs_speed.py [--receipts FILE ...]
    uv run python benchmarks/pairs_speed.py --measure [--tasks N] [--families A,B] [--workers W]
    uv run python benchmarks/pairs_speed.py --ship RESULT

Without --measure it reads the emulator's receipts, by default those of the package and of
`cuda-rl tasks build` (speedups are modelled, for small sizes; only their order is to be trusted).
With it, every kernel of N tasks, balanced over the families (all, or those named), is judged on
the GPU at its real shapes; resumable, its receipts are kept in the cache folder. Prints a table by
family and level, writes benchmarks/results/pairs_speed.json, or pairs_speed.DEVICE.json where it
measured. --ship writes the medians of such a measured result into the package, by which
`data.examples` chooses each task's best kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench_io import RESULTS, at_most, bar, finish, head

from coding_framework.data.examples import in_turn
from coding_framework.data.pairs import kernel_jobs
from coding_framework.data.synthesis.catalog import (
    all_functions,
    build_task,
    family_names,
    family_of,
    parse_function,
)
from coding_framework.data.synthesis.measured import MEASURED_PATH
from coding_framework.data.synthesis.receipts import (
    KernelReceipt,
    all_receipts,
    build_receipts,
    load_receipts,
)
from coding_framework.errors import UsageError
from coding_framework.monitoring.progress import Progress
from coding_framework.paths import cache_dir, write_json_atomic
from coding_framework.store.lines import JsonlSink
from coding_framework.wiring import cores, make_judge

NO_SLOWER = 0.98
"""Where `data.examples` draws the line: the time model is not good for 2%."""
FASTER = 1.05
SHARE_TARGET = 0.9


def speedups(receipts: Iterable[KernelReceipt]) -> dict[tuple[str, str], dict[str, float]]:
    """(family, level) -> task -> speedup over the task's naive kernel, of correct kernels."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for receipt in receipts:
        function, timing = parse_function(receipt.task), receipt.verdict.timing
        optimised = receipt.level != "naive" and not receipt.level.startswith("broken")
        if function is None or timing is None or timing.speedup_vs_naive is None or not optimised:
            continue
        found[family_of(function).name, receipt.level][receipt.task] = timing.speedup_vs_naive
    return dict(sorted(found.items()))


def best_by_task(found: dict[tuple[str, str], dict[str, float]]) -> dict[str, float]:
    """The largest speedup of each task over all levels."""
    best: dict[str, float] = {}
    for tasks in found.values():
        for task, speedup in tasks.items():
            best[task] = max(speedup, best.get(task, 0.0))
    return best


def report(receipts: Sequence[KernelReceipt]) -> dict[str, Any]:
    """The figures of the table, and the bars."""
    found = speedups(receipts)
    best = best_by_task(found)
    timings = [r.verdict.timing for r in receipts if r.verdict.timing is not None]
    modelled = all(timing.modelled for timing in timings)
    threshold = NO_SLOWER if modelled else 1.0
    share = sum(s >= threshold for s in best.values()) / max(1, len(best))
    faster = sum(s >= FASTER for s in best.values()) / max(1, len(best))
    wrong = sorted(
        f"{r.task}/{r.level}: {r.verdict.status.value}"
        for r in receipts
        if not r.verdict.correct and not r.level.startswith("broken")
    )
    said = "modelled no slower" if modelled else "measured faster"
    return {
        **head("pairs_speed"),
        "devices": sorted({r.verdict.receipt.device for r in receipts}),
        "bars": [
            bar(
                f"share of tasks whose best kernel is {said} than the naive one",
                SHARE_TARGET,
                share,
                share >= SHARE_TARGET,
            ),
            at_most("kernels of our templates that the judge found wrong", 0, len(wrong)),
        ],
        "tasks": len(best),
        "share_faster_by_5_percent": round(faster, 4),
        "wrong": wrong,
        "modelled": modelled,
        "slower": {task: round(s, 3) for task, s in sorted(best.items()) if s < threshold},
        "rows": [
            {
                "family": family,
                "level": level,
                "tasks": len(tasks),
                "min": round(min(tasks.values()), 3),
                "median": round(statistics.median(tasks.values()), 3),
                "max": round(max(tasks.values()), 3),
            }
            for (family, level), tasks in found.items()
        ],
    }


async def measure(
    tasks: int | None, families: Sequence[str], workers: int, kept: Path
) -> list[KernelReceipt]:
    """Judge every kernel of the tasks on the GPU; what is in `kept` is not judged again."""
    if unknown := set(families) - set(family_names()):
        raise UsageError(f"no family is called {', '.join(sorted(unknown))}")
    functions = [f for f in all_functions() if not families or family_of(f).name in families]
    drawn = in_turn(functions, lambda function: family_of(function).name, tasks)
    jobs = list(kernel_jobs(map(build_task, drawn)))
    known = load_receipts(kept)
    done = sum(job.key in known for job in jobs)
    with (
        JsonlSink(kept) as sink,
        Progress("measuring", len(jobs), "kernels", done=done) as progress,
        make_judge("cuda", workers=workers) as judge,
    ):
        await build_receipts(
            judge.judge,
            jobs,
            sink.write_line,
            known=known,
            concurrency=2 * workers,
            progress=progress,
        )
    wanted = {job.key for job in jobs}
    return [receipt for key, receipt in load_receipts(kept).items() if key in wanted]


def shipped(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    """What the package keeps of the result of that name. Raises UsageError for a modelled one."""
    if figures["modelled"]:
        raise UsageError(f"{name} is modelled, of small sizes: ship a result of --measure")
    speeds: dict[str, dict[str, float]] = defaultdict(dict)
    for row in figures["rows"]:
        speeds[row["family"]][row["level"]] = row["median"]
    return {
        "source": f"benchmarks/results/{name}",
        "devices": figures["devices"],
        "date": figures["date"],
        "speeds": speeds,
    }


def _result_name(figures: dict[str, Any]) -> str:
    if figures["modelled"]:
        return "pairs_speed.json"
    device = re.sub(r"[^a-z0-9]+", "", " ".join(figures["devices"]).lower().replace("nvidia", ""))
    return f"pairs_speed.{device or 'gpu'}.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--receipts", type=Path, nargs="+", help="default: all of this machine")
    parser.add_argument("--measure", action="store_true", help="on a GPU, at real shapes")
    parser.add_argument("--tasks", type=int, help="with --measure: at most, balanced; default: all")
    parser.add_argument("--families", default="", help="with --measure: names, comma-separated")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--ship", type=Path, metavar="RESULT", help="a measured result's medians")
    parser.add_argument("--output", type=Path, help="with --ship: default, in the package")
    args = parser.parse_args()
    if args.ship is not None:
        found = shipped(args.ship.name, json.loads(args.ship.read_text()))
        write_json_atomic(args.output or MEASURED_PATH, found)
        return 0
    if args.measure:
        kept = cache_dir() / "benchmarks" / "pairs_speed-cuda.jsonl"
        families = [name for name in args.families.split(",") if name]
        receipts = asyncio.run(measure(args.tasks, families, args.workers, kept))
    elif args.receipts:
        receipts = [r for path in args.receipts for r in load_receipts(path).values()]
    else:
        receipts = list(all_receipts().values())
    figures = report(receipts)
    print(f"{'family':<20}{'level':<12}{'tasks':>6}{'min':>9}{'median':>9}{'max':>9}")
    for row in figures["rows"]:
        print(
            f"{row['family']:<20}{row['level']:<12}{row['tasks']:>6}"
            f"{row['min']:>9.3f}{row['median']:>9.3f}{row['max']:>9.3f}"
        )
    kind = "modelled" if figures["modelled"] else "measured"
    share = figures["share_faster_by_5_percent"]
    print(f"{share:.1%} of {figures['tasks']} tasks have a kernel {kind} at least 5% faster")
    return 0 if finish(figures, args.output or RESULTS / _result_name(figures)) else 1


if __name__ == "__main__":
    sys.exit(main())
