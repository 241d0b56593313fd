"""The AI CUDA Engineer Archive as tasks, kernels to judge, and examples.

Rows are joined to their task by `Op_Name` (the archive's first KernelBench, its own sizes), never
by `Task_ID`. Nothing of the archive is an answer to learn from before the judge of this package has
found it correct: `jobs` names what is to be judged, `examples` takes the receipts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from coding_framework.data.archive_rows import (
    HUB_NAME,
    LEVELS,
    LICENCE,
    ArchiveRow,
    LoadReport,
    read_rows,
)
from coding_framework.data.examples import training_examples
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.synthesis.receipts import Job, KernelReceipt, Key
from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.store.events import log
from coding_framework.types import Role, Task, TrainingExample


class SakanaDataLoader:
    """Streams the archive from the hub, or from a local file or folder."""

    def __init__(
        self,
        source: str | Path = HUB_NAME,
        *,
        levels: tuple[int, ...] = LEVELS,
        allow_synthetic: bool = False,
    ) -> None:
        """allow_synthetic: where the archive cannot be read, give synthesised examples instead;
        `report.source` then says so."""
        self.source = source
        self.levels = levels
        self.allow_synthetic = allow_synthetic
        self.report = LoadReport()
        self._tasks: dict[str, Task | None] = {}

    def rows(self) -> Iterator[ArchiveRow]:
        """All usable rows. `report` counts them, and what was skipped. Raises as `read_rows`."""
        self.report = LoadReport()
        yield from read_rows(self.source, self.report, self.levels)

    def is_readable(self) -> bool:
        """Whether a first row can be read; where not, only `allow_synthetic` keeps the reason from
        being raised."""
        try:
            next(iter(read_rows(self.source, LoadReport(), self.levels)), None)
        except CodingFrameworkError:
            if not self.allow_synthetic:
                raise
            return False
        return True

    def task(self, row: ArchiveRow) -> Task | None:
        """The row's task, its sizes scaled for the emulator; None where its module cannot be run
        (counted in `report.skipped`)."""
        if row.op_name not in self._tasks:
            self._tasks[row.op_name] = self._make_task(row)
        task = self._tasks[row.op_name]
        if task is None:
            self.report.skipped["module does not run"] += 1
        return task

    def _make_task(self, row: ArchiveRow) -> Task | None:
        try:
            task = problem_task(row.module_source, row.op_name, level=row.level)
        except UsageError as e:
            log.warning("archive module skipped", op=row.op_name, error=str(e))
            return None
        return task.model_copy(
            update={
                "tier": row.tier,
                "family": f"archive_level{row.level}",
                "source": "sakana",
                "licence": LICENCE,
            }
        )

    def jobs(self, rows: Iterable[ArchiveRow] | None = None) -> Iterator[Job]:
        """What is to be judged: the kernels that the archive calls correct."""
        for row in self.rows() if rows is None else rows:
            task = self.task(row) if row.correct else None
            if task is not None:
                yield Job(task, f"archive:{row.kernel_name}", row.code)

    def examples(
        self, n: int, receipts: Mapping[Key, KernelReceipt], seed: int = 0
    ) -> list[TrainingExample]:
        """Up to `n` generator examples from kernels that the judge found correct, in the archive's
        order, a kernel once. Raises as `read_rows`, unless synthetic examples are allowed."""
        examples: dict[Key, TrainingExample] = {}
        try:
            for job in self.jobs():
                if len(examples) == n:
                    break
                receipt = receipts.get(job.key)
                if receipt is not None and receipt.verdict.correct:
                    examples[job.key] = _example(job, receipt)
        except CodingFrameworkError as e:
            if not self.allow_synthetic:
                raise
            log.warning("archive not read; synthesised examples instead", error=str(e))
            self.report.source = f"synthesis, for {self.source} could not be read"
            return training_examples(Role.GENERATOR, n, seed, receipts=None)
        return list(examples.values())

    def examples_of(
        self, jobs: Iterable[Job], receipts: Mapping[Key, KernelReceipt]
    ) -> list[TrainingExample]:
        """Generator examples of the kernels that the judge found correct, each once."""
        found: dict[Key, TrainingExample] = {}
        for job in jobs:
            receipt = receipts.get(job.key)
            if receipt is not None and receipt.verdict.correct:
                found[job.key] = _example(job, receipt)
        return list(found.values())

    def disagreements(
        self, receipts: Mapping[Key, KernelReceipt]
    ) -> Iterator[tuple[ArchiveRow, KernelReceipt]]:
        """Rows that the archive calls correct and the judge does not: cheats with their evidence,
        wrong on other inputs, or beyond what the judge supports."""
        for row in self.rows():
            task = self.task(row) if row.correct else None
            receipt = receipts.get(Job(task, "", row.code).key) if task is not None else None
            if receipt is not None and not receipt.verdict.correct:
                yield row, receipt


def _example(job: Job, receipt: KernelReceipt) -> TrainingExample:
    return TrainingExample(
        id=f"archive/{job.task.name}/{receipt.kernel_sha256[:12]}",
        task=job.task,
        role=Role.GENERATOR,
        kind="generate",
        code=job.code,
        receipt=receipt.verdict_digest,
    )
