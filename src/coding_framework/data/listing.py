"""The catalogue's tasks by name, kept between runs: drawing them takes seconds, reading them none.

The kept list is addressed by the digest of all code and data that the catalogue is made from, so it
is never that of another version.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.paths import cache_dir, write_atomic
from coding_framework.types import Split

LISTED = {"name", "tier", "family", "ops", "split", "description", "source"}
"""Fields of `Task` that a list of tasks has."""
FOLDER = "listings"
"""Below the cache folder."""
_NOT_CODE = {".pyc", ".jsonl"}
"""Receipts are no part of what a task is."""

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
    kept: Path | None = None
    with suppress(InfrastructureError, OSError, ValueError):
        kept = cache_dir() / FOLDER / f"{_digest()}.json"
        return tuple(json.loads(kept.read_text(encoding="utf-8")))
    made = tuple(_made())
    if kept is not None:
        with suppress(InfrastructureError):  # a list that cannot be kept is made again
            write_atomic(kept, json.dumps(made))
    return made


def _made() -> list[Row]:
    from coding_framework.data.synthesis import catalog

    tasks = map(catalog.build_task, catalog.all_functions())
    return [task.model_dump(mode="json", include=LISTED) for task in tasks]


def _digest() -> str:
    """Of this folder's code and data, and of what records are."""
    key = hashlib.sha256(sys.version.encode())
    folder = Path(__file__).parent
    for path in [*sorted(folder.rglob("*")), folder.parent / "types.py"]:
        if path.is_file() and path.suffix not in _NOT_CODE:
            key.update(str(path.relative_to(folder.parent)).encode() + b"\0" + path.read_bytes())
    return key.hexdigest()[:32]
