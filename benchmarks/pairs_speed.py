"""How much faster the optimised kernels are than the naive ones, from the judge's receipts.

    uv run python benchmarks/pairs_speed.py [--receipts FILE]

Reads the receipts that ship with the package (built by scripts/build_receipts.py on the emulator:
the speedups are modelled, for its small sizes, and only their order is to be trusted). Prints a
table by family and level, writes benchmarks/results/pairs_speed.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coding_framework.data.synthesis.catalog import family_of
from coding_framework.data.synthesis.program import parse_program
from coding_framework.data.synthesis.receipts import RECEIPTS_PATH, KernelReceipt, load_receipts

ROOT = Path(__file__).resolve().parent.parent
NO_SLOWER = 0.98
"""Where `data.examples` draws the line: the time model is not good for 2%."""
FASTER = 1.05
SHARE_TARGET = 0.9


def speedups(receipts: Iterable[KernelReceipt]) -> dict[tuple[str, str], dict[str, float]]:
    """(family, level) -> task -> speedup over the task's naive kernel, of correct kernels."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for receipt in receipts:
        program, timing = parse_program(receipt.task), receipt.verdict.timing
        optimised = receipt.level != "naive" and not receipt.level.startswith("broken")
        if program is None or timing is None or timing.speedup_vs_naive is None or not optimised:
            continue
        found[family_of(program).name, receipt.level][receipt.task] = timing.speedup_vs_naive
    return dict(sorted(found.items()))


def best_by_task(found: dict[tuple[str, str], dict[str, float]]) -> dict[str, float]:
    """The largest speedup of each task over all levels."""
    best: dict[str, float] = {}
    for tasks in found.values():
        for task, speedup in tasks.items():
            best[task] = max(speedup, best.get(task, 0.0))
    return best


def report(receipts: list[KernelReceipt]) -> dict[str, Any]:
    """The figures of the table, and the bar."""
    found = speedups(receipts)
    best = best_by_task(found)
    share = sum(s >= NO_SLOWER for s in best.values()) / max(1, len(best))
    faster = sum(s >= FASTER for s in best.values()) / max(1, len(best))
    wrong = sorted(
        f"{r.task}/{r.level}"
        for r in receipts
        if not r.verdict.correct and not r.level.startswith("broken")
    )
    return {
        "benchmark": "pairs_speed",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.processor() or platform.machine(),
        "versions": {"coding-framework": version("coding-framework")},
        "command": "python benchmarks/pairs_speed.py",
        "commit": _commit(),
        "bars": [
            {
                "bar": "share of tasks whose best kernel is modelled no slower than the naive one",
                "target": SHARE_TARGET,
                "value": round(share, 4),
                "holds": share >= SHARE_TARGET,
            },
            {
                "bar": "kernels of our templates that the judge found wrong",
                "target": 0,
                "value": len(wrong),
                "holds": not wrong,
            },
        ],
        "tasks": len(best),
        "share_faster_by_5_percent": round(faster, 4),
        "wrong": wrong,
        "modelled": True,
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


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--receipts", type=Path, default=RECEIPTS_PATH)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks" / "results" / "pairs_speed.json"
    )
    args = parser.parse_args()
    figures = report(list(load_receipts(args.receipts).values()))
    print(f"{'family':<18}{'level':<12}{'tasks':>6}{'min':>9}{'median':>9}{'max':>9}")
    for row in figures["rows"]:
        print(
            f"{row['family']:<18}{row['level']:<12}{row['tasks']:>6}"
            f"{row['min']:>9.3f}{row['median']:>9.3f}{row['max']:>9.3f}"
        )
    share = figures["share_faster_by_5_percent"]
    print(f"{share:.1%} of {figures['tasks']} tasks have a kernel modelled at least 5% faster")
    for bar in figures["bars"]:
        print(f"{bar['bar']}: {bar['value']} (target {bar['target']}, holds: {bar['holds']})")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
