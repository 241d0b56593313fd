"""`cuda-rl cache`: what the cache folder holds, and removing what was not used for long."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import (
    add_actions,
    add_command,
    add_flags,
    add_json,
    add_switch,
    config_from,
)
from coding_framework.paths import cache_dir
from coding_framework.types import Config

DAY_S = 86400.0
IN_USE_S = 600.0
"""What was used within this time may be in use now, and stays."""
_GRAVE = ".pruned-"


@dataclass(frozen=True, slots=True)
class Part:
    """A folder of the cache."""

    holds: str
    pattern: str
    """Of its entries, each of which is removed as a whole; "" where nothing is to be removed."""
    by_default: bool = False
    """Whether `prune` takes it unless it is named."""


PARTS: dict[str, Part] = {
    "builds": Part("compiled kernels", "entries/*/*", by_default=True),
    "baselines": Part("times of naive kernels and of PyTorch", "*/*.json", by_default=True),
    "verdicts": Part("verdicts of judge and explain", "*/*.json", by_default=True),
    "kernels": Part("what the compiler wrote for tasks", "*/*.json", by_default=True),
    "listings": Part(
        "tasks: their list, and problems as they were read", "*.json", by_default=True
    ),
    "native": Part("our own C parts, compiled", "*"),
    "models": Part("weights of models, converted", "*/*"),
    "datasets": Part("kernels judged on this machine, and data sets", "*"),
}
_KEPT = {
    "slots": "locks, by which processes take turns at compiling",
    "viewer": "indexes of `cuda-rl view`, which can be deleted",
    "benchmarks": "what our benchmarks keep",
}
"""What other folders hold; `prune` leaves them."""
PartName = Literal[
    "builds", "baselines", "verdicts", "kernels", "listings", "native", "models", "datasets"
]  # fmt: skip


class PruneOptions(Config):
    """What to remove."""

    part: PartName | None = None
    """Only this part. Default: builds, baselines, verdicts, kernels, listings, which the next run
    makes again."""
    unused_days: float = Field(default=30.0, ge=0.0)
    """Remove what was not used for so many days; 0 removes all that is not in use."""


@dataclass(frozen=True, slots=True)
class Entry:
    path: Path
    bytes: int
    used: float
    """Seconds since the epoch."""


def add_to(commands: Any) -> None:
    actions = add_actions(
        commands,
        "cache",
        "List and prune the cache: builds, verdicts and data that can be made again.",
    )
    p = add_command(actions, "list", run_list, "List the parts of the cache with their sizes.")
    add_json(p, "print one JSON object a line")
    p = add_command(actions, "prune", run_prune, "Remove what was not used for long.")
    add_flags(p, PruneOptions, PruneOptions.model_fields)
    add_switch(p, "--dry-run", "say what would be removed, and remove nothing")


def run_list(args: Namespace) -> int:
    root = cache_dir()
    for name in sorted(child.name for child in root.iterdir() if child.is_dir()):
        if name.startswith(_GRAVE):
            continue
        found = list(_entries(root / name, PARTS[name].pattern if name in PARTS else "*"))
        holds = PARTS[name].holds if name in PARTS else _KEPT.get(name, "")
        size = sum(entry.bytes for entry in found)
        row = {"part": name, "bytes": size, "entries": len(found), "holds": holds}
        print(json.dumps(row) if args.json else _line(name, size, len(found), holds))
    if not args.json:
        print(f"in {root}; `cuda-rl cache prune` removes what was not used for 30 days")
    return EXIT_OK


def run_prune(args: Namespace) -> int:
    options, root = config_from(PruneOptions, args), cache_dir()
    chosen = [options.part] if options.part else [n for n, p in PARTS.items() if p.by_default]
    if not args.dry_run:
        _finish_earlier(root)
    oldest = time.time() - max(options.unused_days * DAY_S, IN_USE_S)
    for name in chosen:
        old = [e for e in _entries(root / name, PARTS[name].pattern) if e.used < oldest]
        for entry in [] if args.dry_run else old:
            _remove(entry.path, root)
        word = "would be removed" if args.dry_run else "removed"
        print(f"{_line(name, sum(e.bytes for e in old), len(old), '').rstrip()} {word}")
    return EXIT_OK


def _line(name: str, size: int, count: int, holds: str) -> str:
    return f"{name:<10} {size / 1e6:>10.1f} MB  {count:>6} entries  {holds}"


def _entries(folder: Path, pattern: str) -> Iterator[Entry]:
    """Entries of a part. Another process may remove them meanwhile."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            files = [f.stat() for f in (path.rglob("*") if path.is_dir() else (path,))]
            used = max((max(f.st_mtime, f.st_atime) for f in files), default=path.stat().st_mtime)
            yield Entry(path, sum(f.st_size for f in files), used)


def _remove(path: Path, root: Path) -> None:
    """A reader finds the whole entry, or none."""
    grave = Path(tempfile.mkdtemp(prefix=_GRAVE, dir=root))
    with suppress(FileNotFoundError):
        os.rename(path, grave / path.name)
    shutil.rmtree(grave, ignore_errors=True)


def _finish_earlier(root: Path) -> None:
    """Remove what a `prune` that was killed had moved away."""
    for grave in root.glob(f"{_GRAVE}*"):
        shutil.rmtree(grave, ignore_errors=True)
