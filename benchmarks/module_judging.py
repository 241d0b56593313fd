"""Judges the kernels of module tasks, and tells what came of it (`module_tasks.py --judge`)."""

from __future__ import annotations

import statistics
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bench_io import bar

from coding_framework.data.examples import round_robin
from coding_framework.data.modules import catalog
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.modules.speeds import write_speeds
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.pairs import kernel_jobs
from coding_framework.data.synthesis.receipts import (
    Job,
    KernelReceipt,
    Key,
    load_receipts,
    module_receipts,
    pack_receipts,
    task_digest,
)
from coding_framework.errors import UsageError
from coding_framework.run.judged import judge_jobs
from coding_framework.types import BackendChoice

Row = dict[str, Any]
MOST_BYTES = 300
"""Of a compressed receipt."""
FASTER = 1.05
"""Times eager from which a kernel counts as faster."""


@dataclass(frozen=True, slots=True)
class Judging:
    """What is to be judged, and where receipts go."""

    receipts: Path
    backend: BackendChoice
    shard: tuple[int, int]
    """(this machine's number, machines)."""
    tasks: int | None
    """Of all families in turn; None: all."""
    workers: int | None
    pack: Path | None
    """Compressed receipts; None: none are written."""
    merge: tuple[Path, ...]
    """Receipts of other machines."""
    packed_only: bool
    """Judge nothing."""
    minutes: float
    """After which no further kernel is begun."""
    measured: str = ""
    """Where and when, for that table."""
    speeds: Path | None = None
    """Table of families' and levels' speeds; None: none is written."""
    families: tuple[str, ...] = ()
    """Of these alone; (): of all."""


def shard(text: str) -> tuple[int, int]:
    """ "2/4" -> (2, 4). Raises UsageError where it is nothing of the kind."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise UsageError(f"--shard is {text!r}: give this machine's number and how many, as 2/4")
    return int(number), int(count)


def drafts(count: int | None, of: Sequence[str] = ()) -> list[ModuleDraft]:
    """Drafts of all families (or these) in turn, in each by chance but the same in every run: any
    number of them covers the families evenly, and each family's forms."""
    families: dict[str, list[ModuleDraft]] = defaultdict(list)
    for draft in sorted(catalog.all_drafts(), key=lambda d: zlib.crc32(d.name.encode())):
        families[draft.family].append(draft)
    if unknown := sorted({*of} - {*families}):
        raise UsageError(f"--families has {', '.join(unknown)}: there are {', '.join(families)}")
    families = {family: found for family, found in families.items() if not of or family in of}
    return list(islice(round_robin(families.values()), count))


def shard_of(jobs: Iterable[Job], number: int, count: int) -> list[Job]:
    """The jobs of machine `number` of `count`, from 1: each job is one machine's, the same in every
    run, however many jobs there are besides."""
    return [job for job in jobs if int(job.key[1][:8], 16) % count == number - 1]


def judge(given: Judging) -> tuple[Row, list[Row]]:
    """Judge what has no receipt, pack, and tell; (figures, bars)."""
    chosen = drafts(given.tasks, given.families)
    known: dict[Key, KernelReceipt] = {}
    for path in given.merge:
        known |= load_receipts(path)
    if not given.packed_only:
        jobs = list(kernel_jobs(module_task(draft) for draft in chosen))
        own = shard_of(jobs, *given.shard)
        print(f"{len(own)} of {len(jobs)} kernels are this machine's", file=sys.stderr)
        failed, now = judge_jobs(
            own, given.receipts, given.workers, backend=given.backend,
            known={**known, **module_receipts(given.receipts)}, minutes=given.minutes,
        )  # fmt: skip
        print(f"{now} judged now, {failed} open for a fault of ours", file=sys.stderr)
    families = {task_digest(module_task(draft)): draft.family for draft in chosen}
    everything = {**known, **module_receipts(given.receipts)}.values()
    receipts = [r for r in everything if r.task_digest in families and r.code]
    figures = told(receipts, families)
    bars = [bar("correct, of the judged kernels", 0.99, figures["correct_share"],
                figures["correct_share"] >= 0.99)]  # fmt: skip
    if figures["faster_share"] is not None:
        share = figures["faster_share"]
        bars.append(bar(f"tasks with a kernel of {FASTER} times eager, averaged over families",
                        0.6, share, share >= 0.6))  # fmt: skip
    if given.speeds is not None:
        write_speeds(receipts, given.speeds, {"measured": given.measured})
    if given.pack is not None:
        size = pack_receipts(receipts, given.pack)
        each = size / max(1, len(receipts))
        figures["packed"] = {"receipts": len(receipts), "bytes": size, "bytes_each": round(each, 1)}
        bars.append(bar("bytes of a packed receipt", MOST_BYTES, each, each <= MOST_BYTES))
    return figures, bars


def _share_faster(best: dict[str, float]) -> float:
    return sum(speed >= FASTER for speed in best.values()) / len(best)


def _speeds(best: dict[str, float] | None, levels: dict[str, list[float]] | None) -> Row:
    """Of a family whose kernels were timed: its tasks faster than eager, the median times eager."""
    if not best or not levels:
        return {}
    medians = {level: round(statistics.median(found), 3) for level, found in sorted(levels.items())}
    return {"tasks": len(best), "faster": round(_share_faster(best), 3), "times_eager": medians}


def told(receipts: Sequence[KernelReceipt], families: dict[str, str]) -> Row:
    """Counts by family: kernels by status, and how far the fastest one is above eager. families: of
    the tasks, by their digests."""
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    best: dict[str, dict[str, float]] = defaultdict(dict)
    by_level: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    wrong: list[Row] = []
    times: dict[str, list[float]] = defaultdict(list)
    for receipt in receipts:
        verdict, digest = receipt.verdict, receipt.task_digest
        family = families[digest]
        statuses[family][verdict.status.value] += 1
        if not verdict.correct:
            wrong.append({"task": receipt.task, "level": receipt.level,
                          "status": verdict.status.value, "reason": verdict.reason})  # fmt: skip
        elif verdict.timing is not None and verdict.timing.speedup is not None:
            speed = verdict.timing.speedup
            times[receipt.level].append(speed)
            by_level[family][receipt.level].append(speed)
            best[family][digest] = max(best[family].get(digest, 0.0), speed)
    total: Counter[str] = sum(statuses.values(), Counter())
    faster = [_share_faster(speeds) for speeds in best.values()]
    return {
        "kernels": total.total(),
        "statuses": dict(total),
        "correct_share": total["correct"] / max(1, total.total()),
        "families": {
            family: {**found, **_speeds(best.get(family), by_level.get(family))}
            for family, found in sorted(statuses.items())
        },
        "faster_share": statistics.mean(faster) if faster else None,
        "median_times_eager": {
            level: round(statistics.median(found), 3) for level, found in sorted(times.items())
        },
        "not_correct": wrong,
    }
