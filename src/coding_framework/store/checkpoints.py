"""verl's checkpoints on disk: which are whole, which may go, and which policy is kept as the best.

verl writes `global_step_N/actor/*.pt` (and `critic/*.pt`), then `global_step_N/data.pt`. None of
these writes is atomic. After the last one our callback writes `manifest.json`, atomically, with the
size and the digest of each file. A checkpoint without a manifest was cut off by a kill; one that
differs from its manifest was damaged later. A run resumes from neither.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coding_framework.errors import TrainingError, UsageError
from coding_framework.paths import write_atomic
from coding_framework.store.events import log
from coding_framework.store.folder import copy_linked
from coding_framework.types import Record

_STEP = re.compile(r"global_step_(\d+)")
_WORLD = re.compile(r"model_world_size_(\d+)_rank_\d+\.pt")
_BLOCK = 64 << 20
"""Bytes digested at once; several blocks in parallel, for a file of gigabytes takes seconds."""
MANIFEST = "manifest.json"
CURRICULUM = "curriculum.json"
"""State of the curriculum, in checkpoints of runs that have one."""
START_MODEL = "start_model.txt"
"""Names the model that a checkpoint's adapter belongs to, since the checkpoint holds the adapter
alone."""
KEPT = 2


class FileEntry(Record):
    """A file as it was when the checkpoint was finished."""

    size_bytes: int
    digest: str
    """SHA-256 of the SHA-256 digests of its blocks of 64 MiB."""


class Manifest(Record):
    """A finished checkpoint. Maker: `manifest_of`. Consumers: resuming, pruning."""

    step: int
    world_size: int
    files: dict[str, FileEntry]
    """By path below the checkpoint's folder."""


def step_of(folder: Path) -> int:
    """The step of a checkpoint folder."""
    found = _STEP.fullmatch(folder.name)
    if found is None:
        raise ValueError(f"{folder} is not a checkpoint folder (global_step_N)")
    return int(found.group(1))


def finish(folder: Path, manifest: Manifest) -> None:
    """From now on the checkpoint counts."""
    write_atomic(folder / MANIFEST, manifest.model_dump_json(indent=1))


def manifest_of(folder: Path) -> Manifest:
    """What the checkpoint in `folder` consists of; its files are on the disk when this is known."""
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        size = path.stat().st_size
        entry = FileEntry(size_bytes=size, digest=file_digest(path))
        files[path.relative_to(folder).as_posix()] = entry
    return Manifest(step=step_of(folder), world_size=_world_size(folder), files=files)


def _world_size(folder: Path) -> int:
    """Training processes that wrote the policy."""
    for path in (folder / "actor").glob("model_world_size_*_rank_*.pt"):
        found = _WORLD.fullmatch(path.name)
        if found:
            return int(found.group(1))
    raise TrainingError(f"{folder} holds no policy: verl wrote no model_world_size_N_rank_R.pt")


def file_digest(path: Path) -> str:
    """SHA-256 of the SHA-256 digests of the file's blocks of 64 MiB."""

    def block(offset: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return hashlib.sha256(file.read(_BLOCK)).digest()

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        parts = threads.map(block, range(0, path.stat().st_size, _BLOCK))
        return hashlib.sha256(b"".join(parts)).hexdigest()


def read_manifest(folder: Path) -> Manifest | None:
    """None where the checkpoint was not finished."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def whole_checkpoints(root: Path) -> list[Path]:
    """The checkpoints that were finished and have all their files, oldest first."""
    folders = [p for p in root.glob("global_step_*") if _STEP.fullmatch(p.name)]
    return sorted((p for p in folders if is_whole(p)), key=step_of)


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint was finished and its files have the sizes that they had then. Quick:
    what the files hold is looked at by `damage`."""
    manifest = read_manifest(folder)
    return manifest is not None and all(
        _size(folder / name) == entry.size_bytes for name, entry in manifest.files.items()
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, in words; None where every file is as it was written."""
    manifest = read_manifest(folder)
    if manifest is None:
        return "it was not finished (a kill, or a full disk)"
    for name, entry in manifest.files.items():
        path, size = folder / name, _size(folder / name)
        if size < 0:
            return f"{name} is missing"
        if size != entry.size_bytes:
            return f"{name} has {size} bytes and had {entry.size_bytes}"
        if file_digest(path) != entry.digest:
            return f"the content of {name} has changed"
    return None


def nbytes(folder: Path) -> int:
    """Of a finished checkpoint's files."""
    manifest = read_manifest(folder)
    return sum(e.size_bytes for e in manifest.files.values()) if manifest is not None else 0


def latest_checkpoint(root: Path, world_size: int) -> Path | None:
    """The newest checkpoint without damage; None where there is none. A damaged one is passed over
    with a warning.

    Raises:
        UsageError: where it was made by another number of training processes.
    """
    folders = [p for p in root.glob("global_step_*") if _STEP.fullmatch(p.name)]
    passed_over: list[str] = []
    for folder in sorted(folders, key=step_of, reverse=True):
        wrong = damage(folder)
        if wrong is not None:
            passed_over.append(f"{folder.name}: {wrong}")
            continue
        if passed_over:
            log.warning("checkpoint_damaged", damage="; ".join(passed_over), going_on_from=folder)
        manifest = read_manifest(folder)
        assert manifest is not None
        if manifest.world_size != world_size:
            raise UsageError(_other_world(folder, manifest.world_size, world_size))
        return folder
    if passed_over:
        log.warning("checkpoint_damaged", damage="; ".join(passed_over), going_on_from="the start")
    return None


def _other_world(folder: Path, made_by: int, now: int) -> str:
    target = folder.parent.parent / f"model_step_{step_of(folder)}"
    return (
        f"{folder} was made by {made_by} training processes and this run has {now}: rerun with "
        f"{made_by}, or convert its policy with `python -m coding_framework.training.verl.export "
        f"{folder / 'actor'} {target}` and start a run in another folder with "
        f"--generator-checkpoint {target} (the optimizer and the order of tasks begin anew)"
    )


def prune(root: Path, keep: int = KEPT) -> None:
    """Remove what was not finished, and all but the newest `keep` checkpoints.

    Only while no trainer runs: one that is being written looks like one that was cut off.
    """
    kept = set(whole_checkpoints(root)[-keep:])
    for folder in root.glob("global_step_*"):
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def write_curriculum(folder: Path, state: Mapping[str, Any]) -> None:
    """Into the folder of a checkpoint that is not finished yet."""
    (folder / CURRICULUM).write_text(json.dumps(state), encoding="utf-8")


def read_curriculum(folder: Path) -> dict[str, Any] | None:
    """The curriculum's state in a checkpoint; None where the run has none."""
    path = folder / CURRICULUM
    if not path.exists():
        return None
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state


def keep_as(folder: Path, target: Path) -> None:
    """Keep a checkpoint's weights beyond its removal, without the optimizer's state."""
    copy_linked(folder / "actor", target, leave_out="optim_*")


def last_sft_checkpoint(folder: Path) -> tuple[Path | None, int]:
    """The newest whole checkpoint of SFT and its step; (None, 0) where there is none. transformers
    writes `trainer_state.json` last: a checkpoint without it was cut off by a kill, and is removed.
    """
    found = []
    for path in folder.glob("checkpoint-*"):
        try:
            step = int(json.loads((path / "trainer_state.json").read_text())["global_step"])
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path, ignore_errors=True)
            continue
        found.append((step, path))
    step, last = max(found, default=(0, None))
    return last, step
