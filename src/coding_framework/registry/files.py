"""Files of a registry that are named by the SHA-256 of what is in them."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from coding_framework.errors import CodingFrameworkError
from coding_framework.paths import write_atomic

Kind = Literal["objects", "templates", "cubins", "tasks"]
SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "objects": ("cu", "py"),
    "templates": ("json",),
    "cubins": ("cubin", "ptx"),
    "tasks": ("json",),
}
MAX_FILE_BYTES = 64 << 20
_PATH = re.compile(
    r"(objects|templates|cubins|tasks)/([0-9a-f]{2})/([0-9a-f]{64})\.(cu|py|json|cubin|ptx)"
)
_YOUNG_S = 3600.0
"""A file is written before the entry that names it: one that nobody names yet may be such a one."""


class DamagedError(CodingFrameworkError):
    """Something in a registry is not what its name or its signature says."""


class StoredFile(NamedTuple):
    """The name of a file: what it is, and its digest."""

    kind: Kind
    sha256: str
    suffix: str

    @property
    def path(self) -> str:
        """Below the registry's folder."""
        return f"{self.kind}/{self.sha256[:2]}/{self.sha256}.{self.suffix}"


def parse_path(text: str) -> StoredFile | None:
    """The file that a path names; None for every other path."""
    found = _PATH.fullmatch(text)
    if found is None:
        return None
    kind, start, sha256, suffix = found.groups()
    if suffix not in SUFFIXES[kind] or not sha256.startswith(start):  # type: ignore[index]
        return None
    return StoredFile(kind, sha256, suffix)  # type: ignore[arg-type]


class Files:
    """The content-addressed part of a registry's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, kind: Kind, suffix: str, data: bytes) -> StoredFile:
        """Store bytes; those that are there already are left, and looked at. Raises
        InfrastructureError where the folder cannot be written."""
        file = StoredFile(kind, hashlib.sha256(data).hexdigest(), suffix)
        path = self._folder / file.path
        with suppress(DamagedError):
            self.get(file)
            with suppress(OSError):
                os.utime(path)
            return file
        write_atomic(path, data)
        return file

    def get(self, file: StoredFile) -> bytes:
        """Raises DamagedError where it is missing, or is not what its name says."""
        path = self._folder / file.path
        try:
            with path.open("rb") as opened:
                data = opened.read(MAX_FILE_BYTES + 1)
        except OSError as e:
            raise DamagedError(
                f"{path} cannot be read ({e.strerror}): add the kernel again, or import a backup"
            ) from e
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise DamagedError(
                f"{path} is damaged: its bytes are not those of its name; delete it, then add the "
                "kernel again or import a backup"
            )
        return data

    def all(self) -> Iterator[StoredFile]:
        """Every file, in order of its path."""
        for kind in sorted(SUFFIXES):
            for path in sorted((self._folder / kind).glob("*/*")):
                found = parse_path(str(path.relative_to(self._folder)))
                if found is not None:
                    yield found

    def remove_old(self, file: StoredFile) -> int:
        """Remove a file that nobody names, unless it is young; gives the bytes that came free."""
        path = self._folder / file.path
        with suppress(FileNotFoundError):
            found = path.stat()
            if time.time() - found.st_mtime >= _YOUNG_S:
                path.unlink()
                return found.st_size
        return 0
