"""How often the evaluation's intervals hold the truth, and equal models are called different.

    uv run python benchmarks/eval_statistics.py [--suites 2000] [--comparisons 1000]

Simulated suites: tasks of a known chance to be solved, the same for all or drawn from a Beta
distribution for each suite's tasks, with 1 or 8 samples. Coverage is the share of suites whose 95%
interval of pass@1 holds the chance's mean. Comparisons: two models with the same chances, which
vary from task to task; pass@1 alone is compared, for any further metric makes Holm's correction
stricter. Nothing is judged, so that the machine does not matter.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from bench_io import at_most, bar, finish, head

from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.estimates import mean_over_tasks
from coding_framework.evaluation.samples import SampleRecord, TaskCounts
from coding_framework.monitoring.progress import Progress

LOWEST, HIGHEST = 0.92, 0.98
"""Coverage of a 95% interval, with 100 tasks."""
CALLED = 0.065
VARYING = {"beta(0.5, 0.5)": (0.5, 0.5), "beta(1, 3)": (1.0, 3.0)}


def chances(rng: np.random.Generator, kind: float | str, tasks: int) -> np.ndarray:
    if isinstance(kind, str):
        return rng.beta(*VARYING[kind], tasks)
    return np.full(tasks, kind)


def truth(kind: float | str) -> float:
    if isinstance(kind, str):
        a, b = VARYING[kind]
        return a / (a + b)
    return kind


def coverage(kind: float | str, tasks: int, samples: int, suites: int) -> float:
    """The share of suites whose interval holds the truth."""
    rng, held = np.random.default_rng(1), 0
    names = tuple(map(str, range(tasks)))
    for _ in range(suites):
        hits = rng.binomial(samples, chances(rng, kind, tasks))
        counts = TaskCounts(names, np.full(tasks, samples), hits)
        low, high = mean_over_tasks(counts.shares_t, counts).ci95 or (1.0, 0.0)
        held += low <= truth(kind) <= high
    return held / suites


def called_different(kind: str, samples: int, comparisons: int, tasks: int = 100) -> float:
    """The share of comparisons of equal models with a verdict in words."""
    rng, called = np.random.default_rng(2), 0
    for _ in range(comparisons):
        solved = chances(rng, kind, tasks)
        one, other = (list(run(rng, solved, samples)) for _ in range(2))
        found = compare_runs(one, other, ())
        called += found.differences[0].word != "no clear difference"
    return called / comparisons


def run(rng: np.random.Generator, solved: np.ndarray, samples: int) -> Iterator[SampleRecord]:
    flags = rng.random((len(solved), samples)) < solved[:, None]
    for task, row in enumerate(flags):
        for sample, correct in enumerate(row):
            yield SampleRecord.model_construct(
                task=f"t{task:03}", sample=sample, correct=bool(correct), masked=None
            )


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--suites", type=int, default=2000)
    cli.add_argument("--comparisons", type=int, default=1000)
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    top = head("eval_statistics", packages=("numpy", "scipy"))
    kinds: list[float | str] = [0.05, 0.5, 0.95, *VARYING]
    cells = list(product((20, 100), (1, 8), kinds))
    rows: list[dict[str, Any]] = []
    with Progress("coverage", len(cells), "cells") as progress:
        for tasks, samples, kind in cells:
            share = coverage(kind, tasks, samples, args.suites)
            rows.append({"tasks": tasks, "samples": samples, "chance": kind, "coverage": share})
            progress.advance(note=f"{tasks} tasks, {samples} samples, {kind}: {share:.3f}")
    errors = {
        f"{kind}, {samples} samples": called_different(kind, samples, args.comparisons)
        for kind, samples in product(VARYING, (1, 8))
    }
    bars = [
        bar(
            f"coverage, 100 tasks of {r['samples']} samples, chance {r['chance']}",
            [LOWEST, HIGHEST], r["coverage"], LOWEST <= r["coverage"] <= HIGHEST,
        )
        for r in rows
        if r["tasks"] == 100
    ]  # fmt: skip
    bars += [
        at_most(f"equal models called different, {name}", CALLED, share)
        for name, share in errors.items()
    ]
    sizes = {"suites": args.suites, "comparisons": args.comparisons}
    return 0 if finish({**top, "bars": bars, **sizes, "coverage": rows}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
