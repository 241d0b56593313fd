"""Training examples in a file of JSON lines, each read when it is asked for.

Guaranteed: a file is there as a whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import ValidationError
from pydantic_core import from_json

from coding_framework.data.modules.catalog import find_draft
from coding_framework.data.synthesis.catalog import parse_function, split_of
from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic
from coding_framework.types import Record, Split, Task, TrainingExample


class Entry(NamedTuple):
    """The fields that examples are chosen by."""

    id: str
    task: str
    role: str


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
    """The examples of a JSON-lines file by number."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where the file is missing or torn."""
        self.path = path
        try:
            self._lines = path.read_bytes().splitlines()
            found = map(from_json, self._lines)
            self.entries = [Entry(e["id"], e["task"]["name"], e["role"]) for e in found]
        except (OSError, ValueError, LookupError, TypeError) as e:
            raise UsageError(
                f"{path} is not a file of training examples: build it with "
                "`cuda-rl data build-sft` or `cuda-rl data mistakes`"
            ) from e

    @classmethod
    def write(cls, path: Path, examples: Iterable[TrainingExample]) -> Self:
        """Write the examples, and read them from then on."""
        lines = (f"{example.model_dump_json(exclude_defaults=True)}\n" for example in examples)
        write_atomic(path, "".join(lines))
        return cls(path)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[TrainingExample]:
        return map(TrainingExample.model_validate_json, self._lines)

    def __getitem__(self, number: int) -> TrainingExample:
        """Example `number`; raises IndexError beyond the last."""
        return TrainingExample.model_validate_json(self._lines[number])


def read_training_examples(path: Path) -> list[TrainingExample]:
    """All examples of a file, to be learnt from. Raises UsageError where it is missing or damaged,
    or holds a task that the catalogue holds out, whatever its own record says."""
    try:
        examples = list(ExampleStore(path))
    except ValidationError as e:
        raise UsageError(f"{path} is damaged: build it again") from e
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
