#!/usr/bin/env python
"""Judge the synthesised kernels and keep the verdicts that ship with the package.

    uv run scripts/build_receipts.py [--train N] [--naive N] [--held-out N] [--workers W]
    uv run scripts/build_receipts.py --harder

--harder: naive kernels of training tasks of the tiers 2 and 3, which a curriculum over all tasks
needs, into a file of their own. The starter tasks are those of the other file alone, so they stay.
Resumable: a kernel with a receipt of the present protocol is not judged again, nor one whose host
and device code are those of such a receipt; one of an older protocol holds until then. Verdicts are
kept in --work as they come, and packed into the package's file at the end, without those of kernels
that are written otherwise now. Run it after a change of the compiler, a shape or the judging
protocol.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.data.examples import functions_of, is_for_repair, round_robin
from coding_framework.data.pairs import kernel_jobs, pair_jobs
from coding_framework.data.synthesis.catalog import build_task, family_of
from coding_framework.data.synthesis.function import Function
from coding_framework.data.synthesis.receipts import (
    HARDER_PATH,
    RECEIPTS_PATH,
    Job,
    KernelReceipt,
    Key,
    load_receipts,
    pack_receipts,
)
from coding_framework.paths import cache_dir
from coding_framework.run.judged import judge_jobs
from coding_framework.types import Split
from coding_framework.wiring import cores


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=int, default=600, help="training tasks, all kernels")
    parser.add_argument("--naive", type=int, default=600, help="training tasks, naive kernels")
    parser.add_argument("--held-out", type=int, default=110, help="held-out tasks")
    parser.add_argument("--max-steps", type=int, default=3, help="longest composition")
    parser.add_argument("--max-tier", type=int, default=1, help="hardest tier")
    parser.add_argument("--harder", type=int, nargs="?", const=130, help="tasks of tiers 2 and 3")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--output", type=Path, help="default: the package's file")
    parser.add_argument("--work", type=Path, help="default: a file in the cache")
    parser.add_argument("--keep-stale", action="store_true", help="do not drop old receipts")
    args = parser.parse_args(arguments)
    args.work = args.work or cache_dir() / "datasets" / "building.jsonl"
    args.output = args.output or (HARDER_PATH if args.harder else RECEIPTS_PATH)
    return args


def wanted(args: argparse.Namespace) -> list[Job]:
    """The kernels to judge, each once."""
    if args.harder:
        found = round_robin(
            members
            for members in functions_of(Split.TRAIN, 0, args.max_steps, scope="all")
            if family_of(members[0]).tier >= 2
        )
        return naive_jobs(list(islice(found, args.harder)))
    held_out, training = (
        list(round_robin(functions_of(split, 0, args.max_steps, args.max_tier)))
        for split in (Split.HELD_OUT, Split.TRAIN)
    )
    judged = [*held_out[: args.held_out], *training[: args.train]]
    jobs = [*kernel_jobs(map(build_task, judged)), *naive_jobs(training[: args.naive])]
    for function in training[: args.train]:
        if is_for_repair(function):
            jobs += islice(pair_jobs([build_task(function)]), 1)
    return list({job.key: job for job in jobs}.values())


def naive_jobs(functions: Sequence[Function]) -> list[Job]:
    """What baselines and examples for the generator need."""
    return [job for job in kernel_jobs(map(build_task, functions)) if job.level == "naive"]


def known(*paths: Path) -> dict[Key, KernelReceipt]:
    """Receipts of the present protocol."""
    receipts = {k: r for path in paths for k, r in load_receipts(path).items()}
    return {k: r for k, r in receipts.items() if r.verdict.receipt.protocol == PROTOCOL}


def main() -> int:
    args = parse()
    jobs = wanted(args)
    before = known(args.output, args.work)
    failed, _ = judge_jobs(jobs, args.work, args.workers, known=before)
    judged, keys = known(args.output, args.work), {job.key for job in jobs}
    kept = {k: r for k, r in judged.items() if k in keys}
    pack_receipts(
        {**(load_receipts(args.output) if args.keep_stale else {}), **kept}.values(), args.output
    )
    print(f"{len(jobs) - failed} kernels have a receipt, {failed} do not", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
