"""verl's checkpoints on disk: which is whole, which may go, and the policy kept as the best.

verl writes `global_step_N/actor/*.pt`, then `global_step_N/data.pt`, then the number into a tracker
file. None of these writes is atomic, so a kill can leave any prefix of that; a checkpoint counts
only if every file of it can be opened to its end.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from pathlib import Path

from coding_framework.errors import TrainingError

_STEP = re.compile(r"global_step_(\d+)")
_WORLD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
KEPT = 2


def step_of(folder: Path) -> int:
    """The step of a checkpoint folder."""
    found = _STEP.fullmatch(folder.name)
    if found is None:
        raise ValueError(f"{folder} is not a checkpoint folder (global_step_N)")
    return int(found.group(1))


def whole_checkpoints(root: Path) -> list[Path]:
    """The checkpoints that can be resumed from, oldest first."""
    folders = [p for p in root.glob("global_step_*") if _STEP.fullmatch(p.name)]
    return sorted((p for p in folders if is_whole(p)), key=step_of)


def is_whole(folder: Path) -> bool:
    """Whether all files of a checkpoint are there and complete.

    A .pt file is a zip archive, whose directory stands at its end: one cut off cannot be opened.
    """
    models = sorted((folder / "actor").glob("model_world_size_*_rank_*.pt"))
    if not models or not zipfile.is_zipfile(folder / "data.pt"):
        return False
    found = _WORLD.fullmatch(models[0].name)
    world = int(found.group(1)) if found else 0
    names = [
        f"{part}_world_size_{world}_rank_{rank}.pt"
        for rank in range(world)
        for part in ("model", "optim", "extra_state")
    ]
    return all(zipfile.is_zipfile(folder / "actor" / name) for name in names)


def latest_checkpoint(root: Path, world_size: int) -> Path | None:
    """The newest whole checkpoint; None where there is none.

    Raises:
        TrainingError: where it was made by another number of training processes.
    """
    whole = whole_checkpoints(root)
    if not whole:
        return None
    newest = whole[-1]
    model = next((newest / "actor").glob("model_world_size_*_rank_*.pt"))
    found = _WORLD.fullmatch(model.name)
    made_by = int(found.group(1)) if found else 0
    if made_by != world_size:
        raise TrainingError(
            f"{newest} was made by {made_by} training processes and this run has {world_size}: "
            f"rerun with {made_by}, or start a new run from an exported model"
        )
    return newest


def prune(root: Path, keep: int = KEPT) -> None:
    """Remove what cannot be resumed from, and all but the newest `keep` checkpoints.

    Only while no trainer runs: one that is being written looks like one that was cut off.
    """
    kept = set(whole_checkpoints(root)[-keep:])
    for folder in root.glob("global_step_*"):
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def keep_as(folder: Path, target: Path) -> None:
    """Keep a checkpoint's weights beyond its removal, by hard links: takes no time and no space.

    Atomic: `target` is the old one or the new one. The optimizer's state is not kept.
    """
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(
        folder / "actor", fresh, copy_function=_link, ignore=shutil.ignore_patterns("optim_*")
    )
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)
    return target
