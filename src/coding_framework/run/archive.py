"""The AI CUDA Engineer Archive as SFT's examples: read, judged here, and told where from.

What this machine has judged once is kept in $CUDA_RL_CACHE/datasets/archive, as `cuda-rl data
build-sft --source archive` keeps it. Where the archive cannot be read, synthesised examples stand
in for it, and the run's summary says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from coding_framework.agents.models import hub_answers
from coding_framework.data.examples import round_robin
from coding_framework.data.sakana_loader import LEVELS, SakanaDataLoader, archive_examples_of
from coding_framework.data.synthesis.receipts import Job, load_receipts
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.paths import cache_dir
from coding_framework.run.judged import judge_jobs
from coding_framework.store.events import log
from coding_framework.types import TrainingExample

SPARE = 1.5
"""Kernels judged for each example that is wanted: of the archive's own correct ones a part is not
by our judge."""
SYNTHESIS = "synthesised kernels"


@dataclass(frozen=True)
class ArchiveExamples:
    """Maker: `archive_examples`. Consumer: `fine_tune`."""

    examples: tuple[TrainingExample, ...]
    told: str
    """Where they are from, in words."""


def archive_examples(source: str, count: int) -> ArchiveExamples:
    """Up to `count` of the generator's examples, of each of the archive's levels in turn; none
    where it cannot be read. source: its file or folder, or its name on the hub.

    Raises UsageError where a file is not of the archive.
    """
    if not Path(source).exists() and not hub_answers():
        log.warning(
            "archive_not_read", source=source, why="the hub does not answer", instead=SYNTHESIS
        )
        return ArchiveExamples((), f"{SYNTHESIS}, for {source} could not be read")
    folder = cache_dir() / "datasets" / "archive"
    by_level: list[Sequence[TrainingExample]] = []
    for level in LEVELS:
        try:
            by_level.append(_of_level(source, level, math.ceil(count / len(LEVELS)), folder))
        except InfrastructureError as e:
            log.warning("archive_not_read", source=source, level=level, why=str(e))
    found = list(islice(round_robin(by_level), count))
    if not found:
        return ArchiveExamples((), f"{SYNTHESIS}, for no kernel of {source} could be used")
    levels = Counter(example.task.family.removeprefix("archive_") for example in found)
    counts = ", ".join(f"{n} of {level}" for level, n in sorted(levels.items()))
    return ArchiveExamples(tuple(found), f"{source}: {counts}")


def _of_level(source: str, level: int, count: int, folder: Path) -> Sequence[TrainingExample]:
    """Up to `count` examples of a level, whose kernels our judge finds correct."""
    loader = SakanaDataLoader(source, levels=(level,))
    try:
        jobs = list(islice(_one_of_each(loader.jobs()), math.ceil(count * SPARE)))
    except UsageError as e:
        if "holds no usable row" not in str(e):
            raise
        return ()
    receipts_file = folder / "receipts.jsonl"
    judge_jobs(jobs, receipts_file, None)
    return archive_examples_of(jobs, load_receipts(receipts_file))[:count]


def _one_of_each(jobs: Iterator[Job]) -> Iterator[Job]:
    """The first kernel of each task, then the others: the archive has dozens of each in a row."""
    seen: set[str] = set()
    later: list[Job] = []
    for job in jobs:
        if job.task.name in seen:
            later.append(job)
        else:
            seen.add(job.task.name)
            yield job
    yield from later
