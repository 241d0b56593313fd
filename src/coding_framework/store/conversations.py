"""Stored rollouts: every conversation of training, one JSON line each, for reports and replay.

Written by the rollout workers, read by the trainer's progress, reports and curriculum. A rerun
repeats the steps after its last checkpoint, so each attempt writes into a folder of its own and a
step's rollouts are those of the latest attempt that reached it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from coding_framework.store.records import Rollout

ROLES_FOLDER = "roles"
"""Where a run with a policy a role has a run for each."""


def rollouts_file(folder: Path, step: int) -> Path:
    """Where the rollouts of a step are."""
    return folder / f"step_{step:06d}.jsonl"


def append_rollout(folder: Path, rollout: Rollout) -> None:
    """Append one line, whole: several workers may write the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    line = rollout.model_dump_json().encode() + b"\n"
    descriptor = os.open(
        rollouts_file(folder, rollout.step), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
    )
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_rollouts(folder: Path, step: int) -> Iterator[Rollout]:
    """The rollouts of a step in the order they ended; a line cut by a kill is left out."""
    path = rollouts_file(folder, step)
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield Rollout.model_validate_json(line)


def run_rollouts(output_dir: Path) -> Iterator[Rollout]:
    """All rollouts of a run, step by step; of a repeated step those of its last attempt. With a
    policy a role those of one role's training come before the other's.

    Args:
        output_dir: The run's folder (`MultiTurnRLConfig.output_dir`).
    """
    for own in sorted(output_dir.glob(f"{ROLES_FOLDER}/*")):
        yield from run_rollouts(own)
    latest: dict[int, Path] = {}
    for path in sorted(output_dir.glob("attempts/*/rollouts/step_*.jsonl")):
        latest[int(path.stem.removeprefix("step_"))] = path.parent
    for step in sorted(latest):
        yield from read_rollouts(latest[step], step)


class RolloutCounter:
    """How many conversations of a step have ended by now; reads only what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._step = -1
        self._offset = 0
        self._count = 0

    def count(self, step: int) -> int:
        """Ended conversations of `step`. Steps are asked for in rising order."""
        if step != self._step:
            self._step, self._offset, self._count = step, 0, 0
        path = rollouts_file(self._folder, step)
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            self._offset += len(new)
            self._count += new.count(b"\n")
        return self._count
