"""The catalogues' tasks by name, as `cuda-rl tasks list` shows them: kept between runs, and no task
is made for them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, Literal

from coding_framework.data.kept import kept
from coding_framework.errors import UsageError
from coding_framework.types import Split

Catalogue = Literal["synthesis", "modules"]
Row = dict[str, Any]
"""Fields of a `Task`, as JSON has them."""


def rows(
    of: Catalogue = "synthesis",
    *,
    split: Split | None = None,
    family: str | None = None,
    tier: int | None = None,
) -> list[Row]:
    """A catalogue's tasks, filtered, in its order. Raises UsageError for an unknown family."""
    found = _all_rows(of)
    families = list(dict.fromkeys(row["family"] for row in found))
    if family is not None and family not in families:
        raise _no_family(family, families)
    return [
        row
        for row in found
        if (split is None or row["split"] == split.value)
        and (family is None or row["family"] == family)
        and (tier is None or row["tier"] == tier)
    ]


def _no_family(name: str, families: Sequence[str]) -> UsageError:
    """The error for a family that is not there: the near ones first."""
    near = get_close_matches(name, families, n=3)
    hint = f"did you mean {' or '.join(near)}? there are" if near else "there are:"
    return UsageError(f"no family is called {name!r}; {hint} {', '.join(families)}")


def names(of: Catalogue = "synthesis") -> list[str]:
    """Of every task of a catalogue."""
    return [row["name"] for row in _all_rows(of)]


@cache
def _all_rows(of: Catalogue) -> tuple[Row, ...]:
    return tuple(kept(of, partial(_made, of)))


def _made(of: Catalogue) -> list[Row]:
    from coding_framework.data.modules.catalog import all_drafts
    from coding_framework.data.modules.tasks import facts_of
    from coding_framework.data.synthesis import catalog

    told = (
        map(catalog.facts_of, catalog.all_functions())
        if of == "synthesis"
        else map(facts_of, all_drafts())
    )
    return [{**row, "ops": [*row["ops"]], "split": row["split"].value} for row in told]


def digested(of: Catalogue, chosen: Sequence[Row]) -> list[Row]:
    """Rows of a catalogue with `digest`, by which receipts name a task. To find them all tasks are
    made, so they are kept likewise."""
    from coding_framework.data.modules.tasks import find_module_task
    from coding_framework.data.synthesis.catalog import find
    from coding_framework.data.synthesis.receipts import task_digest

    def made() -> list[tuple[str, str]]:
        tasks = map(find if of == "synthesis" else find_module_task, names(of))
        return [(task.name, task_digest(task)) for task in tasks if task is not None]

    digests = dict(kept(f"{of}-digests", made))
    return [{**row, "digest": digests[row["name"]]} for row in chosen]
