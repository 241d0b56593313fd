"""Where things that can be made again are kept."""

from __future__ import annotations

import os
from pathlib import Path

from coding_framework.errors import InfrastructureError


def cache_dir() -> Path:
    """Folder of what can be made again: $CUDA_RL_CACHE, else ~/.cache/coding_framework.

    Raises InfrastructureError where it cannot be made.
    """
    root = os.environ.get("CUDA_RL_CACHE")
    path = Path(root) if root else Path.home() / ".cache" / "coding_framework"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InfrastructureError(
            f"the cache folder {path} cannot be made ({e.strerror}): set CUDA_RL_CACHE to a folder "
            "that can be written"
        ) from e
    return path
