#!/usr/bin/env python
"""Write down what every task of the catalogues is and what kernels we have for it.

    uv run scripts/freeze_tasks.py

`tests/unit/data/test_frozen_tasks.py` compares: whoever changes a task or a kernel runs this, and
says in the commit what changed, which this prints by family. A minute on one core.
"""

from __future__ import annotations

import hashlib
import lzma
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from coding_framework.data.kernels import kernels_of
from coding_framework.data.modules.catalog import all_drafts
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.catalog import (
    all_functions,
    build_task,
    family_of,
    split_of,
)
from coding_framework.paths import write_atomic
from coding_framework.types import KernelExample, Task

FROZEN = Path(__file__).parents[1] / "tests/unit/data/frozen_tasks.tsv.xz"
_FAMILIES_READ = 4
"""Of so many families one has its first kernels frozen."""
_MOST_NAMED = 5
"""Tasks of a family that a change is told of by name."""


class Facts(NamedTuple):
    """What is frozen of a task; digests are of 24 bits."""

    family: str
    part: str
    """train, validation or held_out."""
    key: str
    """Of the canonical key, by which the split is made."""
    reference: str = ""
    cases: str = ""
    """Of the shape sets and the constructor's arguments."""
    kernels: str = ""
    """`LEVEL=DIGEST`, between bars; of the first task of each fourth family, as reading it takes
    half a second."""


Making = partial[tuple[Task, Sequence[KernelExample]]]


def tasks() -> Iterator[tuple[str, Facts, Making]]:
    """Each task by name, with what is known without making it and how it is made."""
    read: set[str] = set()

    def making(make: Callable[[], Task], family: str) -> Making:
        first = family not in read
        read.add(family)
        return partial(_made, make, with_kernels=first and len(read) % _FAMILIES_READ == 1)

    for function in all_functions():
        key = " ".join(canonical_key(function))
        facts = Facts(family_of(function).name, split_of(function).value, _digest(key))
        yield function.name, facts, making(partial(build_task, function), facts.family)
    for draft in all_drafts():
        facts = Facts(draft.family, draft.part, _digest(draft.key))
        make = partial(lambda draft: module_task(draft), draft)
        yield draft.name, facts, making(make, facts.family)


def _made(make: Callable[[], Task], *, with_kernels: bool) -> tuple[Task, Sequence[KernelExample]]:
    task = make()
    return task, kernels_of(task) if with_kernels else ()


def whole(facts: Facts, task: Task, made: Iterable[KernelExample]) -> Facts:
    """The facts with those of the task and its kernels."""
    cases = task.model_dump_json(include={"cases", "gpu_cases", "init_args", "atomic_order"})
    return facts._replace(
        reference=_digest(task.reference),
        cases=_digest(cases),
        kernels="|".join(f"{kernel.level}={_digest(kernel.code)}" for kernel in made),
    )


def read(path: Path = FROZEN) -> dict[str, Facts]:
    """What is frozen, by the task's name."""
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    rows = (line.split("\t") for line in lines)
    return {name: Facts(*facts) for name, *facts in rows}


def write(frozen: Mapping[str, Facts], path: Path = FROZEN) -> None:
    """The inverse of `read`."""
    text = "".join("\t".join((name, *facts)) + "\n" for name, facts in frozen.items())
    write_atomic(path, lzma.compress(text.encode(), preset=9))


def changes(frozen: Mapping[str, Facts], now: Mapping[str, Facts]) -> list[str]:
    """What differs, a line for each family and kind of change."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in frozen.keys() - now.keys():
        found[frozen[name].family, "tasks that are no more"].append(name)
    for name in now.keys() - frozen.keys():
        found[now[name].family, "new tasks"].append(name)
    for name in frozen.keys() & now.keys():
        for field, before, after in zip(Facts._fields, frozen[name], now[name], strict=True):
            if before != after:
                found[now[name].family, f"another {field}"].append(name)
    return [_told(*place, sorted(names)) for place, names in sorted(found.items())]


def _told(family: str, what: str, names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f"{family}: {what}: {len(names)} ({', '.join(names[:_MOST_NAMED])}{more})"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def main() -> int:
    before = read() if FROZEN.exists() else {}
    now = {name: whole(facts, *make()) for name, facts, make in tasks()}
    write(now)
    print(*changes(before, now), sep="\n")
    print(f"{len(now)} tasks are frozen in {FROZEN}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
