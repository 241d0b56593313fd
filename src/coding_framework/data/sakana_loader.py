"""The AI CUDA Engineer Archive: its rows, read one by one and checked, as tasks, kernels to judge,
and examples.

Guaranteed: rows are streamed (memory does not grow with the archive), and a row that cannot be used
is counted under its reason and skipped: never fatal, never silent. Rows are joined to their task by
`Op_Name` (the archive's first KernelBench, its own sizes), never by `Task_ID`. What a row says of
itself is the archive's claim, and the archive holds known cheats: nothing of it is an answer to
learn from before the judge of this package has found it correct.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.provenance import ARCHIVE, ARCHIVE_LICENCE, require_trainable
from coding_framework.data.synthesis.receipts import Job, KernelReceipt, Key
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.store.events import log
from coding_framework.types import Record, Role, Task, TrainingExample

LEVELS = (1, 2, 3)
MAX_SOURCE_BYTES = 1 << 20
"""Of a row's kernel or module; the archive's longest kernel has about 30 kB."""
_SCHEMA_SAMPLE = 20
"""When so many first rows in a row lack a column, the schema has changed."""

COLUMNS: Mapping[str, str] = {
    "Op_Name": "op_name",
    "Level_ID": "level",
    "Kernel_Name": "kernel_name",
    "CUDA_Code": "code",
    "PyTorch_Code_Module": "module_source",
    "Correct": "correct",
    "Error": "error",
}
"""Of the archive's 19 columns, those that are read, and what they are called here."""

_MATMUL_LIKE = re.compile(
    r"mat|gemm|bmm|linear|conv|softmax|norm|pool|attention|mlp|lstm|gru|rnn", re.IGNORECASE
)
_REDUCTION_LIKE = re.compile(
    r"sum|mean|max|min|prod|reduc|argm|loss|cross|diverg|similarity", re.IGNORECASE
)
_CALL = re.compile(r"\b(?:torch|F|nn|functional|self)\.\w+\s*\(")


class ArchiveRow(Record):
    """One kernel of the archive, as the archive tells it."""

    op_name: str
    level: int
    kernel_name: str
    code: str
    module_source: str
    correct: bool
    error: str | None = None
    """The full log where the build or the run failed."""

    @property
    def outcome(self) -> str:
        """correct, mismatched or failed."""
        if self.correct:
            return "correct"
        return "mismatched" if self.error is None else "failed"

    @property
    def tier(self) -> int:
        """Difficulty 0-3, from the operation: the archive's level 1 holds matmuls too."""
        heavy = bool(_MATMUL_LIKE.search(self.op_name))
        if self.level >= 3:
            return 3
        if self.level == 2:
            return 3 if heavy else 2
        if heavy:
            return 2
        return 1 if _REDUCTION_LIKE.search(self.op_name) else 0


@dataclass
class LoadReport:
    """How many rows were read, and how many were left out for which reason."""

    outcomes: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> rows (or files)."""

    def summary(self) -> str:
        """One line for people."""
        outcomes = ", ".join(f"{n} {name}" for name, n in sorted(self.outcomes.items()))
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.skipped.items()))
        return f"{self.outcomes.total()} rows ({outcomes}); skipped: {reasons or 'none'}"


class SakanaDataLoader:
    """Streams the archive from the hub, or from a local file or folder (.jsonl, .parquet)."""

    def __init__(self, source: str | Path = ARCHIVE, *, levels: tuple[int, ...] = LEVELS) -> None:
        self.source = source
        self.levels = levels
        self.report = LoadReport()
        self._tasks: dict[str, Task | None] = {}

    def rows(self) -> Iterator[ArchiveRow]:
        """All usable rows. `report` counts them, and what was skipped.

        Raises InfrastructureError where the hub cannot be reached, UsageError where there is
        nothing to read, the schema has changed, or the source may not be trained on.
        """
        require_trainable(str(self.source))
        report = self.report = LoadReport()
        path = Path(self.source)
        unusable = 0
        for value in self._local(path) if path.exists() else self._hub():
            row = parse_row(value)
            if isinstance(row, str):
                report.skipped[row] += 1
                unusable += not report.outcomes and row.startswith("missing")
                if unusable == _SCHEMA_SAMPLE:
                    raise UsageError(
                        f"the rows of {path} do not have the archive's columns ({row}): "
                        "use a version of the data with the schema of 2025, or other data"
                    )
            elif row.level in self.levels:
                report.outcomes[row.outcome] += 1
                yield row
        if not report.outcomes:
            raise UsageError(f"{path} holds no usable row of the archive: {report.summary()}")

    def task(self, row: ArchiveRow) -> Task | None:
        """The row's task, its sizes scaled for the emulator; None where its module cannot be run
        (counted in `report.skipped`)."""
        if row.op_name not in self._tasks:
            self._tasks[row.op_name] = _task(row)
        task = self._tasks[row.op_name]
        if task is None:
            self.report.skipped["module does not run"] += 1
        return task

    def judged(
        self, receipts: Mapping[Key, KernelReceipt]
    ) -> Iterator[tuple[ArchiveRow, Job, KernelReceipt | None]]:
        """The rows that the archive calls correct, and what our judge says of them; where it says
        otherwise, they are cheats with their evidence, wrong on other inputs, or unsupported."""
        for row in self.rows():
            task = self.task(row) if row.correct else None
            if task is not None:
                job = Job(task, f"archive:{row.kernel_name}", row.code)
                yield row, job, receipts.get(job.key)

    def jobs(self) -> Iterator[Job]:
        """What is to be judged: the kernels that the archive calls correct."""
        return (job for _, job, _ in self.judged({}))

    def _local(self, path: Path) -> Iterator[Any]:
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        known = [f for f in files if f.suffix in (".jsonl", ".parquet")]
        if not known:
            raise UsageError(
                f"{path} holds no .jsonl and no .parquet file: give the archive's folder"
            )
        for file in known:
            yield from self._jsonl(file) if file.suffix == ".jsonl" else self._parquet(file)

    def _jsonl(self, path: Path) -> Iterator[Any]:
        with path.open("rb") as lines:
            for line in lines:
                try:
                    yield json.loads(line)
                except UnicodeDecodeError:
                    self.report.skipped["not UTF-8"] += 1
                except ValueError:
                    self.report.skipped["not JSON"] += 1

    def _parquet(self, path: Path) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=64):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError):
            self.report.skipped[f"unreadable file {path.name}"] += 1

    def _hub(self) -> Iterator[Any]:
        from datasets import load_dataset

        for level in self.levels:
            try:
                yield from load_dataset(str(self.source), split=f"level_{level}", streaming=True)
            except Exception as e:  # the hub's client raises many kinds for "cannot be reached"
                raise InfrastructureError(
                    f"the dataset {self.source} cannot be loaded ({type(e).__name__}): check the "
                    "network, or give a local folder with its .parquet or .jsonl files"
                ) from e


def archive_examples_of(
    jobs: Iterable[Job], receipts: Mapping[Key, KernelReceipt]
) -> list[TrainingExample]:
    """Generator examples of the kernels that the judge found correct, each once."""
    found: dict[Key, TrainingExample] = {}
    for job in jobs:
        receipt = receipts.get(job.key)
        if receipt is not None and receipt.verdict.correct:
            found[job.key] = TrainingExample(
                id=f"archive/{job.task.name}/{receipt.kernel_sha256[:12]}",
                task=job.task,
                role=Role.GENERATOR,
                kind="generate",
                code=job.code,
                receipt=receipt.verdict_digest,
            )
    return list(found.values())


def parse_row(value: Any) -> ArchiveRow | str:
    """The row, or the reason why it cannot be used."""
    if not isinstance(value, Mapping):
        return "not an object"
    missing = [column for column in COLUMNS if column not in value]
    if missing:
        return f"missing {missing[0]}"
    for column in ("CUDA_Code", "PyTorch_Code_Module"):
        text = value[column]
        if not isinstance(text, str) or not text.strip():
            return f"no {column}"
        if len(text.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
            return f"oversized {column}"
    fields = {name: value[column] for column, name in COLUMNS.items()}
    if fields["level"] is None:
        fields["level"] = _inferred_level(fields["module_source"])
    try:
        return ArchiveRow(**fields)
    except ValidationError as e:
        return f"wrong type of {e.errors()[0]['loc'][0]}"


def _inferred_level(module_source: str) -> int:
    """The archive's level of a module that does not say it, from how much it calls: one operation,
    a chain of a few, or a network."""
    calls = len(_CALL.findall(module_source.partition("def forward")[2].partition("def get_")[0]))
    return 1 if calls <= 1 else (2 if calls <= 6 else 3)


def _task(row: ArchiveRow) -> Task | None:
    try:
        task = problem_task(row.module_source, row.op_name, level=row.level)
    except UsageError as e:
        log.warning("archive module skipped", op=row.op_name, error=str(e))
        return None
    of_archive = {"source": "sakana", "licence": ARCHIVE_LICENCE}
    return task.model_copy(
        update={"tier": row.tier, "family": f"archive_level{row.level}", **of_archive}
    )
