"""Records as JSON lines, appended one by one; a line cut off by a kill is dropped on reading."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from coding_framework.errors import InfrastructureError
from coding_framework.paths import cannot_write


class JsonlSink:
    """Appends JSON objects to a file, each flushed to the disk before `write` returns.

    Opening it first cuts off a line that a killed writer left unfinished. One writer a file.
    """

    def __init__(self, path: Path) -> None:
        """Raises InfrastructureError where the file cannot be opened."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("ab")
            _cut_unfinished_line(path, self._file)
        except OSError as e:
            raise InfrastructureError(cannot_write(path, e)) from e

    def write(self, record: Any) -> None:
        """Append one record. Raises InfrastructureError where the disk is full."""
        self.write_line(json.dumps(record))

    def write_line(self, line: str) -> None:
        """Append a record that is JSON already."""
        try:
            self._file.write(line.encode("utf-8", "surrogatepass") + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as e:
            raise InfrastructureError(cannot_write(self.path, e)) from e

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as e:
            raise InfrastructureError(cannot_write(self.path, e)) from e

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[str]:
    """The finished lines of the file, without their newline; none where there is no file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n") and line.strip():
                yield line[:-1].decode("utf-8", "surrogatepass")


def _cut_unfinished_line(path: Path, file: IO[bytes]) -> None:
    size = path.stat().st_size
    if size == 0:
        return
    with path.open("rb") as reader:
        position = size
        while position > 0:
            step = min(65_536, position)
            position -= step
            reader.seek(position)
            found = reader.read(step).rfind(b"\n")
            if found >= 0:
                file.truncate(position + found + 1)
                return
    file.truncate(0)
