"""Training examples in a file: an index in memory, one line read for each example asked for.

Guaranteed: a file is there as a whole or not at all; readers never write, so there may be any
number of them, in any processes, and each reads by position without moving the others.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from coding_framework.data.modules.catalog import find_draft
from coding_framework.data.synthesis.catalog import parse_function, split_of
from coding_framework.errors import UsageError
from coding_framework.paths import write_error
from coding_framework.types import Record, Split, Task, TrainingExample


class IndexEntry(Record):
    """Where an example stands in the file, and the fields that examples are chosen by."""

    id: str
    task: str
    tier: int
    role: str
    kind: str
    offset: int = 0
    length: int = 0

    @classmethod
    def of(cls, example: TrainingExample, offset: int = 0, length: int = 0) -> Self:
        """The entry of an example whose line is there."""
        return cls(
            id=example.id,
            task=example.task.name,
            tier=example.task.tier,
            role=example.role.value,
            kind=example.kind,
            offset=offset,
            length=length,
        )


@dataclass
class BuildReport:
    """What came of a build, counted while it goes on. Makers: `pairs`, `mistakes`. Consumer: the
    set's manifest."""

    conversations: int = 0
    """That were read."""
    kept: Counter[str] = field(default_factory=Counter)
    """By tier, and by kind or status: "tier 0 generate", "tier 2 wrong_output"."""
    left_out: Counter[str] = field(default_factory=Counter)
    """By reason."""


class SetManifest(Record):
    """What a built set holds. Maker: `of`. Consumers: people, `cuda-rl data card`."""

    source: str
    """Where the examples come from; says so where synthesis stands in for the archive."""
    conversations: int
    examples: int
    tasks: int
    kept: dict[str, int]
    left_out: dict[str, int]
    file: str

    @classmethod
    def of(cls, store: ExampleStore, source: str, report: BuildReport) -> Self:
        return cls(
            source=source,
            conversations=report.conversations,
            examples=len(store),
            tasks=len({entry.task for entry in store.entries}),
            kept=dict(sorted(report.kept.items())),
            left_out=dict(sorted((+report.left_out).items())),
            file=str(store.path),
        )


class ExampleStore:
    """The examples of a JSON-lines file by number. The file has its index beside it."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where the file or its index is missing or torn."""
        self.path = path
        try:
            lines = _index_path(path).read_bytes().splitlines()
            self.entries = [IndexEntry.model_validate_json(line) for line in lines]
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValidationError) as e:
            raise UsageError(
                f"{path} is not a file of training examples, or its index is missing: build it "
                "with `cuda-rl data build-sft` or `cuda-rl data mistakes`"
            ) from e
        size = os.fstat(self._file).st_size
        if self.entries and self.entries[-1].offset + self.entries[-1].length > size:
            self.close()
            raise UsageError(f"{path} is shorter than its index says: build it again")

    @classmethod
    def write(cls, path: Path, examples: Iterable[TrainingExample]) -> Self:
        """Write the examples one by one, then put file and index in place together; the index last,
        without which a file is not read."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, examples)
        except OSError as e:
            raise write_error(path, e) from e
        return cls(path)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, number: int) -> TrainingExample:
        """Example `number`; raises IndexError beyond the last."""
        entry = self.entries[number]
        return TrainingExample.model_validate_json(os.pread(self._file, entry.length, entry.offset))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()


def read_training_examples(path: Path) -> list[TrainingExample]:
    """All examples of a file, to be learnt from. Raises UsageError where it is missing or damaged,
    or holds a task that the catalogue holds out, whatever its own record says."""
    with ExampleStore(path) as store:
        try:
            examples = [store[number] for number in range(len(store))]
        except ValidationError as e:
            raise UsageError(f"{path} does not fit its index: build it again") from e
    if not examples:
        raise UsageError(f"{path} holds no example: build it again")
    leaks = [e.id for e in examples if _is_held_out(e.task)]
    if leaks:
        raise UsageError(
            f"{path} holds {len(leaks)} examples of held-out tasks (first: {leaks[0]}), from which "
            "nothing may be learnt: build it from conversations about training tasks"
        )
    return examples


def _is_held_out(task: Task) -> bool:
    function, draft = parse_function(task.name), find_draft(task.name)
    return (
        task.split is Split.HELD_OUT
        or (function is not None and split_of(function) is Split.HELD_OUT)
        or (draft is not None and draft.part != "train")
    )


def _index_path(path: Path) -> Path:
    return path.with_name(path.name + ".index")


def _write(path: Path, examples: Iterable[TrainingExample]) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        data, index = Path(folder) / "data", Path(folder) / "index"
        with data.open("wb") as lines, index.open("w", encoding="utf-8") as entries:
            offset = 0
            for example in examples:
                line = example.model_dump_json(exclude_defaults=True).encode() + b"\n"
                lines.write(line)
                entry = IndexEntry.of(example, offset, len(line))
                entries.write(entry.model_dump_json() + "\n")
                offset += len(line)
            for file in (lines, entries):
                file.flush()
                os.fsync(file.fileno())
        _index_path(path).unlink(missing_ok=True)
        os.replace(data, path)
        os.replace(index, _index_path(path))
