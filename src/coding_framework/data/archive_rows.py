"""Rows of the AI CUDA Engineer Archive, read one by one and checked.

Guaranteed: rows are streamed (memory does not grow with the archive), and a row that cannot be
used is counted under its reason and skipped: never fatal, never silent. What a row says of itself
(correct, speedups) is the archive's claim; the archive holds known cheats, so every kernel is
judged again before it is trained on.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from coding_framework.data.provenance import require_trainable
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.types import Record

HUB_NAME = "SakanaAI/AI-CUDA-Engineer-Archive"
LICENCE = "CC-BY-4.0"
LEVELS = (1, 2, 3)
MAX_SOURCE_BYTES = 1 << 20
"""Of a row's kernel or module; the archive's longest kernel has about 30 kB."""
_SCHEMA_SAMPLE = 20
"""When so many first rows in a row lack a column, the schema has changed."""

Outcome = Literal["correct", "mismatched", "failed"]

COLUMNS: Mapping[str, str] = {
    "Op_Name": "op_name",
    "Level_ID": "level",
    "Task_ID": "task_id",
    "Kernel_Name": "kernel_name",
    "CUDA_Code": "code",
    "PyTorch_Code_Module": "module_source",
    "Correct": "correct",
    "CUDA_Runtime": "runtime_ms",
    "CUDA_Speedup_Native": "speedup_native",
    "CUDA_Speedup_Compile": "speedup_compile",
    "Max_Diff": "max_diff",
    "Error": "error",
    "NCU_Profile": "ncu_profile",
    "Clang_Tidy": "clang_tidy",
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
    task_id: int
    kernel_name: str
    code: str
    module_source: str
    correct: bool
    runtime_ms: float | None = None
    """Null where the kernel is wrong."""
    speedup_native: float | None = None
    """0.0 where the kernel is wrong."""
    speedup_compile: float | None = None
    max_diff: float | None = None
    """Null where the build or the run failed."""
    error: str | None = None
    """The full log where the build or the run failed."""
    ncu_profile: str | None = None
    clang_tidy: str | None = None

    @property
    def outcome(self) -> Outcome:
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

    def profile(self) -> Mapping[str, Any]:
        """Nsight Compute's figures, {} where the row has none or they do not parse."""
        if self.ncu_profile is None:
            return {}
        try:
            value = ast.literal_eval(self.ncu_profile)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


@dataclass
class LoadReport:
    """How many rows were read, and how many were left out for which reason."""

    source: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> rows (or files)."""

    @property
    def loaded(self) -> int:
        return sum(self.outcomes.values())

    def summary(self) -> str:
        """One line for people."""
        outcomes = ", ".join(f"{n} {name}" for name, n in sorted(self.outcomes.items()))
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.skipped.items()))
        return f"{self.loaded} rows of {self.source} ({outcomes}); skipped: {reasons or 'none'}"


def read_rows(
    source: str | Path, report: LoadReport, levels: tuple[int, ...] = LEVELS
) -> Iterator[ArchiveRow]:
    """The usable rows of a local file or folder (.jsonl, .parquet), or of a dataset on the hub.

    Raises InfrastructureError where the hub cannot be reached, UsageError where there is nothing
    to read or the schema has changed.
    """
    require_trainable(str(source))
    path = Path(source)
    report.source = str(source)
    raw = _read_local(path, report) if path.exists() else _read_hub(str(source), levels)
    unusable = 0
    for value in raw:
        row = parse_row(value)
        if isinstance(row, str):
            report.skipped[row] += 1
            unusable += report.loaded == 0 and row.startswith("missing")
            if unusable == _SCHEMA_SAMPLE:
                raise UsageError(
                    f"the rows of {source} do not have the archive's columns ({row}): "
                    "use a version of the data with the schema of 2025, or other data"
                )
        elif row.level in levels:
            report.outcomes[row.outcome] += 1
            yield row
    if report.loaded == 0:
        raise UsageError(f"{source} holds no usable row of the archive: {report.summary()}")


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
        fields["level"] = infer_level(fields["module_source"])
    try:
        return ArchiveRow(**fields)
    except ValidationError as e:
        return f"wrong type of {e.errors()[0]['loc'][0]}"


def infer_level(module_source: str) -> int:
    """The archive's level of a module that does not say it, from how much it calls: one operation,
    a chain of a few, or a network."""
    calls = len(_CALL.findall(module_source.partition("def forward")[2].partition("def get_")[0]))
    return 1 if calls <= 1 else (2 if calls <= 6 else 3)


def _read_local(path: Path, report: LoadReport) -> Iterator[Any]:
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    known = [f for f in files if f.suffix in (".jsonl", ".parquet")]
    if not known:
        raise UsageError(f"{path} holds no .jsonl and no .parquet file: give the archive's folder")
    for file in known:
        yield from (_read_jsonl if file.suffix == ".jsonl" else _read_parquet)(file, report)


def _read_jsonl(path: Path, report: LoadReport) -> Iterator[Any]:
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except UnicodeDecodeError:
                report.skipped["not UTF-8"] += 1
            except ValueError:
                report.skipped["not JSON"] += 1


def _read_parquet(path: Path, report: LoadReport) -> Iterator[Any]:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError):
        report.skipped[f"unreadable file {path.name}"] += 1


def _read_hub(name: str, levels: tuple[int, ...]) -> Iterator[Any]:
    from datasets import load_dataset

    for level in levels:
        try:
            yield from load_dataset(name, split=f"level_{level}", streaming=True)
        except Exception as e:  # the hub's client raises many kinds for "cannot be reached"
            raise InfrastructureError(
                f"the dataset {name} cannot be loaded ({type(e).__name__}): check the network, or "
                "give a local folder with its .parquet or .jsonl files"
            ) from e
