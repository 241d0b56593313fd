"""Events of ended experiments that a version before 0.2 moved into files."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from coding_framework.errors import InfrastructureError


def archived_events(path: Path, sha256: str) -> list[list[Any]]:
    """The fields of each event. Raises InfrastructureError where the file is not as it was
    written."""
    try:
        content = path.read_bytes()
    except OSError as e:
        raise InfrastructureError(
            f"the archive {path} cannot be read ({e.strerror}): put it back beside the database"
        ) from e
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InfrastructureError(
            f"the archive {path} was changed after it was written: restore it"
        )
    lines = gzip.decompress(content).decode().splitlines()
    return [[_field(field) for field in json.loads(line)] for line in lines]


def _field(field: Any) -> Any:
    return bytes.fromhex(field["hex"]) if isinstance(field, dict) else field
