"""Which torch headers a candidate is compiled against: the small ones of ours, or the real ones.

Guaranteed: a build sees exactly the headers that its content address names. The small ones are
compiled from a copy by content, so that an update of the package under a running process changes
neither what it compiles nor what it caches under the old address.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from coding_framework.cuda.sandbox import Mount
from coding_framework.errors import MissingToolError
from coding_framework.paths import alone, write_error

INCLUDE_FOLDER = Path(__file__).parents[1] / "include"
_KEEP_UNUSED_S = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class Headers:
    """Folders to search, first to last, and what tells their contents from any other."""

    folders: tuple[Mount, ...]
    digest: str


def small_headers(store: Path) -> Headers:
    """Our headers as they are now, from a copy of them in `store`. Raises InfrastructureError
    where the copy cannot be written."""
    files = _read_folder(INCLUDE_FOLDER)
    digest = _digest(files)
    copy = store / digest
    try:
        if not _is_whole(copy, digest):
            store.mkdir(parents=True, exist_ok=True)
            with alone(store / ".lock"):
                if not _is_whole(copy, digest):  # a copy that others compile from is never moved
                    _write_copy(copy, files)
            _remove_unused(store)
        os.utime(copy)
    except OSError as e:
        raise write_error(copy, e) from e
    return Headers((Mount(copy, "/opt/include"),), digest)


def torch_headers() -> Headers:
    """The headers of the installed torch, of Python, and of the CUDA libraries that they name.
    Raises MissingToolError where torch is not installed."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        raise MissingToolError("torch is not installed, and its headers are asked for: make setup")
    torch = Path(found.origin).parent / "include"
    python = Path(sysconfig.get_paths()["include"])
    folders = [
        Mount(torch, "/opt/torch"),
        Mount(torch / "torch" / "csrc" / "api" / "include", "/opt/torch_api"),
        Mount(python, "/opt/python"),
    ]
    libraries = sorted((Path(sysconfig.get_paths()["purelib"]) / "nvidia").glob("cu[0-9]*/include"))
    folders += [Mount(folder, f"/opt/{folder.parent.name}") for folder in libraries]
    for mount in folders:
        if not mount.host.is_dir():
            raise MissingToolError(
                f"the headers in {mount.host} are missing: install torch and Python's development "
                "files"
            )
    names = f"torch {_version('torch')} python {sys.version} {[str(m.host) for m in folders]}"
    return Headers(tuple(folders), hashlib.sha256(names.encode()).hexdigest())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _read_folder(folder: Path) -> dict[str, bytes]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def _digest(files: Mapping[str, bytes]) -> str:
    key = hashlib.sha256()
    for name, content in files.items():
        key.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return key.hexdigest()


def _is_whole(copy: Path, digest: str) -> bool:
    return copy.is_dir() and _digest(_read_folder(copy)) == digest


def _write_copy(copy: Path, files: Mapping[str, bytes]) -> None:
    """Make or replace the copy, under the store's lock."""
    made = copy.with_name(".made")
    shutil.rmtree(made, ignore_errors=True)  # of a process that was killed
    made.mkdir()
    try:
        for name, content in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(content)
        made.chmod(0o755)
        damaged = made / ".damaged"
        with suppress(FileNotFoundError):
            os.rename(copy, damaged)
        os.rename(made, copy)
        shutil.rmtree(copy / ".damaged", ignore_errors=True)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove_unused(store: Path) -> None:
    for folder in store.iterdir():
        with suppress(OSError):
            if folder.is_dir() and time.time() - folder.stat().st_mtime > _KEEP_UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)
