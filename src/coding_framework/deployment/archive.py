"""Archives of ended experiments: their events as compressed JSON lines, with a digest."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from coding_framework.errors import InfrastructureError
from coding_framework.paths import write_atomic


class ArchiveError(InfrastructureError):
    """The archive of an experiment is not there, or not as it was written."""


def write_archive(path: Path, events: Iterable[tuple[Any, ...]]) -> tuple[str, int]:
    """Write the events, each as its fields in order; (SHA-256 of the file, how many). The same
    events give the same bytes. Raises InfrastructureError where it cannot be written."""
    lines = [json.dumps([_told(field) for field in event]) for event in events]
    content = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
    write_atomic(path, content)
    return hashlib.sha256(content).hexdigest(), len(lines)


def archived_events(path: Path, sha256: str) -> Iterator[list[Any]]:
    """The fields of each event. Raises ArchiveError."""
    try:
        content = path.read_bytes()
    except OSError as e:
        raise ArchiveError(
            f"the archive {path} cannot be read ({e.strerror}): put it back beside the database"
        ) from e
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ArchiveError(f"the archive {path} was changed after it was written: restore it")
    for line in gzip.decompress(content).decode().splitlines():
        yield [_field(field) for field in json.loads(line)]


def _told(field: Any) -> Any:
    return {"hex": field.hex()} if isinstance(field, bytes) else field


def _field(field: Any) -> Any:
    return bytes.fromhex(field["hex"]) if isinstance(field, dict) else field
