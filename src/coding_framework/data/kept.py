"""What is drawn by code and data alone, kept between runs: drawing it takes a large part of a
second, reading it none.

A kept list is addressed by the digest of all code and data that tasks are made from, so it is never
that of another version.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from coding_framework.errors import InfrastructureError
from coding_framework.paths import cache_dir, write_atomic

FOLDER = "listings"
"""Below the cache folder."""
_NO_PART = (".pyc", "receipts.jsonl.xz")
"""Ends of the names of what is no part of what a task is."""


def kept(name: str, make: Callable[[], list[Any]]) -> list[Any]:
    """The list of that name, of what JSON can say: read, or else made and kept. Where it cannot be
    kept it is made each time."""
    file: Path | None = None
    with suppress(InfrastructureError, OSError, ValueError):
        file = cache_dir() / FOLDER / f"{digest()}.{name}.json"
        return list(json.loads(file.read_text(encoding="utf-8")))
    made = make()
    if file is not None:
        with suppress(InfrastructureError):
            write_atomic(file, json.dumps(made))
    return made


@cache
def digest() -> str:
    """Of this folder's code and data, and of what records are."""
    key = hashlib.sha256(sys.version.encode())
    folder = Path(__file__).parent
    for path in [*sorted(folder.rglob("*")), folder.parent / "types.py"]:
        if path.is_file() and not path.name.endswith(_NO_PART):
            key.update(str(path.relative_to(folder.parent)).encode() + b"\0" + path.read_bytes())
    return key.hexdigest()[:32]
