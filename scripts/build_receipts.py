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
from pathlib import Path

from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.data.examples import jobs_for
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
        only = {"min_tier": 2, "naive_only": True, "max_steps": args.max_steps}
        return jobs_for(Split.TRAIN, args.harder, scope="all", **only)
    limits = {"max_steps": args.max_steps, "max_tier": args.max_tier}
    jobs = jobs_for(Split.HELD_OUT, args.held_out, **limits)
    jobs += jobs_for(Split.TRAIN, args.train, **limits)
    jobs += jobs_for(Split.TRAIN, args.naive, naive_only=True, **limits)
    return list({job.key: job for job in jobs}.values())


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
