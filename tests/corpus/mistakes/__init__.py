"""Kernels with one common mistake each, written before their author had read the diagnosis.

Each `.cu` file is a right kernel of the task of its name. Each line of `mistakes.tsv` edits one of
them into a wrong kernel and names the mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong kernel and what is wrong in it."""

    kind: str
    task: str
    code: str


def right_kernels() -> dict[str, str]:
    """The right kernel of each task that the corpus breaks."""
    return {file.stem: file.read_text() for file in sorted(FOLDER.glob("*.cu"))}


def mistakes() -> list[Mistake]:
    """All wrong kernels, in the table's order."""
    right, made = right_kernels(), []
    for line in (FOLDER / "mistakes.tsv").read_text().splitlines()[1:]:
        kind, task, old, new = line.split("\t")
        code = right[task]
        for before, after in zip(old.split(" ;; "), new.split(" ;; "), strict=True):
            changed = code.replace(before.replace("\\n", "\n"), after.replace("\\n", "\n"))
            assert changed != code, f"{kind} in {task}: {before!r} is not there"
            code = changed
        made.append(Mistake(kind, task, code))
    return made
