"""A cache folder as another machine has it."""

from __future__ import annotations

from pathlib import Path

from coding_framework.paths import cache_dir


def other_cache(folder: Path) -> Path:
    """Without a build, but with our own programs, the interpreter and the host runner, which take
    long to build and are the same there."""
    (cache_dir() / "native").mkdir(exist_ok=True)
    folder.mkdir()
    (folder / "native").symlink_to(cache_dir() / "native")
    return folder
