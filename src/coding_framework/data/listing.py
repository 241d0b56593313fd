"""The catalogue's tasks by name, as `cuda-rl tasks list` shows them; kept between runs."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from coding_framework.data.kept import kept
from coding_framework.errors import UsageError
from coding_framework.types import Split

LISTED = {"name", "tier", "family", "ops", "split", "description", "source"}
"""Fields of `Task` that a list of tasks has."""
Row = dict[str, Any]
"""The `LISTED` fields of a task, as JSON has them."""


def rows(
    *, split: Split | None = None, family: str | None = None, tier: int | None = None
) -> list[Row]:
    """The catalogue's tasks, filtered, in the catalogue's order. Raises UsageError for an unknown
    family."""
    found = _all_rows()
    families = list(dict.fromkeys(row["family"] for row in found))
    if family is not None and family not in families:
        raise no_family(family, families)
    return [
        row
        for row in found
        if (split is None or row["split"] == split.value)
        and (family is None or row["family"] == family)
        and (tier is None or row["tier"] == tier)
    ]


def no_family(name: str, families: Sequence[str]) -> UsageError:
    """The error for a family that is not there: the near ones first."""
    near = get_close_matches(name, families, n=3)
    hint = f"did you mean {' or '.join(near)}? there are" if near else "there are:"
    return UsageError(f"no family is called {name!r}; {hint} {', '.join(families)}")


def names() -> list[str]:
    """Of every task of the catalogue."""
    return [row["name"] for row in _all_rows()]


@cache
def _all_rows() -> tuple[Row, ...]:
    return tuple(kept("tasks", _made))


def _made() -> list[Row]:
    from coding_framework.data.synthesis import catalog

    tasks = map(catalog.build_task, catalog.all_functions())
    return [task.model_dump(mode="json", include=LISTED) for task in tasks]
