"""Records as JSON lines: appended one by one, each whole; a line that is cut costs itself alone.

Guaranteed: what `append_line` has returned from is in the file, also where the system wrote it in
pieces; several processes may append to one file; after a kill or a full disk the next record begins
a line of its own. A reader leaves out a line that it cannot use, counts it and says so once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from coding_framework.paths import write_error
from coding_framework.store.events import log

T = TypeVar("T")

_BLOCK = 65_536
_told: set[tuple[Path, int, int]] = set()
"""What was said of a file: one that is polled would say it every second."""


def append_line(path: Path, line: str) -> None:
    """Append a record that is JSON already. Raises InfrastructureError where the disk is full."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _opened(path)
        try:
            _append(file, line)
        finally:
            os.close(file)
    except OSError as e:
        raise write_error(path, e) from e


class JsonlSink(contextlib.AbstractContextManager["JsonlSink"]):
    """Appends JSON objects to a file, each on the disk before `write` returns.

    Opening it cuts off a line that a killed writer left unfinished.
    """

    def __init__(self, path: Path) -> None:
        """Raises InfrastructureError where the file cannot be opened."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _opened(path)
            with _locked(self._file):
                _cut_unfinished_line(self._file)
        except OSError as e:
            raise write_error(path, e) from e

    def write(self, record: Any) -> None:
        """Append one record. Raises InfrastructureError where the disk is full."""
        self.write_line(json.dumps(record))

    def write_line(self, line: str) -> None:
        """Append a record that is JSON already."""
        try:
            _append(self._file, line)
            os.fsync(self._file)
        except OSError as e:
            raise write_error(self.path, e) from e

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parsed_lines(
    path: Path, parse: Callable[[str], T], skipped: Callable[[int], None] | None = None
) -> Iterator[T]:
    """What `parse` makes of each finished line; nothing where there is no file.

    A line on which `parse` fails (ValueError, KeyError, TypeError) is left out. skipped: is called
    with the number of such a line and of an unfinished last one; None: one warning counts them, but
    not the last one, which somebody may be writing. Raises OSError where the file cannot be read.
    """
    if not path.exists():
        return
    bad: list[int] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("unfinished")
                record = parse(line[:-1].decode("utf-8", "surrogatepass"))
            except (ValueError, KeyError, TypeError):
                if skipped is not None:
                    skipped(number)
                elif line.endswith(b"\n"):
                    bad.append(number)
                continue
            yield record
    if bad and (path, bad[0], len(bad)) not in _told:
        _told.add((path, bad[0], len(bad)))
        log.warning("unreadable_lines", path=str(path), first=bad[0], count=len(bad))


def read_lines(path: Path) -> Iterator[str]:
    """The finished lines of the file, without their newline; none where there is no file."""
    return parsed_lines(path, str)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


@contextlib.contextmanager
def _locked(file: int) -> Iterator[bool]:
    """Whether the file is ours alone in the block: a file system may know no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _append(file: int, line: str) -> None:
    data = memoryview(line.encode("utf-8", "surrogatepass") + b"\n")
    with _locked(file) as alone:
        size = os.fstat(file).st_size
        try:
            if size and os.pread(file, 1, size - 1) != b"\n":
                os.write(file, b"\n")  # what is there is a fragment: it must not join this line
            while data:
                data = data[os.write(file, data) :]
        except OSError:
            if alone:
                with contextlib.suppress(OSError):
                    os.ftruncate(file, size)
            raise


def _cut_unfinished_line(file: int) -> None:
    position = os.fstat(file).st_size
    while position > 0:
        start = max(0, position - _BLOCK)
        found = os.pread(file, position - start, start).rfind(b"\n")
        if found >= 0:
            position = start + found + 1
            break
        position = start
    if position < os.fstat(file).st_size:
        os.ftruncate(file, position)
