"""Which kernels no process may use any more: a file for each, written before the fault is raised.

The files lie beside the registry. Where that cannot be written they lie in the cache of this user.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from coding_framework.errors import CodingFrameworkError
from coding_framework.paths import cache_dir, write_json_atomic

_FOLDER = "quarantine"


def add_to_quarantine(
    registry: Path, kernel: str, reason: str, *, suspects: Sequence[str] = ()
) -> Path | None:
    """The file that says so; None where none could be written. kernel: its id. suspects: others
    that may have been the one."""
    content = {
        "kernel": kernel,
        "reason": reason,
        "certain": not suspects,
        "suspects": sorted(suspects),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "at": now(),
    }
    for folder in _folders(registry):
        path = folder / f"{_file_name(kernel)}.json"
        with suppress(CodingFrameworkError):
            write_json_atomic(path, content)
            return path
    return None


def now() -> str:
    """UTC, as receipts have it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def quarantined(registry: Path, judged: Mapping[str, str]) -> dict[str, str]:
    """Reason by id of the kernels that are in quarantine. judged: when a kernel got its newest
    verdict, by id: one that is newer than the fault ends its quarantine."""
    found: dict[str, str] = {}
    for folder in _folders(registry):
        with suppress(OSError):
            for path in sorted(folder.glob("*.json")):
                kernel, reason, at = _read(path)
                if judged.get(kernel, "") <= at:
                    found[kernel] = reason
    return found


def _read(path: Path) -> tuple[str, str, str]:
    """Kernel, reason and time. A file that cannot be read counts: its name says the kernel."""
    try:
        content = json.loads(path.read_text())
        return str(content["kernel"]), str(content["reason"]), str(content["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"sha256:{path.stem}", f"{path} says so", "9"


def _folders(registry: Path) -> list[Path]:
    folders = [registry / _FOLDER]
    with suppress(CodingFrameworkError):
        name = hashlib.sha256(str(registry.resolve()).encode()).hexdigest()[:16]
        folders.append(cache_dir() / _FOLDER / name)
    return folders


def _file_name(kernel: str) -> str:
    digest = kernel.removeprefix("sha256:")
    return digest if digest.isalnum() else hashlib.sha256(kernel.encode()).hexdigest()
