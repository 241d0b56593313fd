"""Where things that can be made again are kept, and how files are written so that none is half."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coding_framework.errors import InfrastructureError, UnwritableError


def cache_dir() -> Path:
    """Folder of what can be made again: $CUDA_RL_CACHE, else ~/.cache/coding_framework.

    Raises UnwritableError where it cannot be made.
    """
    path = _cache_root()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UnwritableError(
            f"the cache folder {path} cannot be made ({e.strerror}): set CUDA_RL_CACHE to a folder "
            "that can be written"
        ) from e
    return path


def _cache_root() -> Path:
    root = os.environ.get("CUDA_RL_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "coding_framework"


def program() -> str:
    """How a shell in this folder calls `cuda-rl`: by its name where that is on PATH, else by its
    path beside this Python."""
    beside = Path(sys.executable).with_name("cuda-rl")
    if shutil.which("cuda-rl") is not None or not beside.is_file():
        return "cuda-rl"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """While nobody else, in this or another process, is in a block with the lock of this file."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file as a whole or not at all: temporary file, fsync, rename, fsync of the folder.

    After a SIGKILL or a power cut, `path` holds the old content or the new one. Raises
    InfrastructureError where the disk is full or the folder cannot be written.
    """
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
        _fsync_folder(path.parent)
    except OSError as e:
        raise write_error(path, e) from e
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def write_json_atomic(path: Path, value: Any) -> None:
    """`write_atomic` of indented JSON. NaN and infinity are errors: JSON has none."""
    write_atomic(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


_NO_PLACE = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR,
        errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST,
    }
)  # fmt: skip
"""The folder is a wrong choice; all else (a full disk, a broken one) can happen to a right one."""


def write_error(path: Path, error: OSError) -> InfrastructureError:
    """The error to raise where `path` could not be written: UnwritableError where another choice of
    folder helps."""
    kind = UnwritableError if error.errno in _NO_PLACE else InfrastructureError
    return kind(cannot_write(path, error))


def require_writable(folder: Path) -> None:
    """Make the folder where it is not there, and write a file in it. Raises UnwritableError, so
    that hours of work do not end with it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as e:
        raise write_error(folder, e) from e


def cannot_write(path: Path, error: OSError) -> str:
    """One sentence that says why `path` could not be written, and what to do."""
    elsewhere = " or set CUDA_RL_CACHE" if path.is_relative_to(_cache_root()) else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        disk = f"the disk of {path.parent}" if path.parent != Path() else "the disk"
        return f"{disk} is full: free some space{elsewhere} and run the same command again"
    why = error.strerror or str(error)
    file = next((parent for parent in (path, *path.parents) if parent.is_file()), None)
    if file is not None and error.errno in (errno.EEXIST, errno.ENOTDIR):
        why = f"{file} is a file"
    return f"{path} cannot be written ({why}): choose a folder that can be written"


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
