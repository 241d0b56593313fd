"""Times that candidates' are put beside (of a naive kernel, of PyTorch), kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from coding_framework.cuda.toolchain.slots import slot
from coding_framework.paths import cache_dir, write_json_atomic
from coding_framework.types import Task


class BaselineTimes:
    """One time a task that others are put beside (its naive kernel's, PyTorch's), measured once and
    kept on disk: the same figure in every run and every process. Of judges that need it at the same
    time, as for the answers of a group, one measures it and the others wait.

    It is measured on draws of its own with a public seed, or taken over from whoever measured it
    for a verdict before.
    """

    def __init__(self, measure: Callable[[Task], float | None], salt: str) -> None:
        """measure: time in ms for a task, None where there is none (a naive kernel that is not
        correct). salt: everything else that it depends on (what it is of, device, toolkit)."""
        self._measure = measure
        self._salt = salt
        self._held: dict[str, float | None] = {}

    def known(self, task: Task) -> bool:
        """Whether `time_ms` needs no measurement."""
        key = self._key(task)
        return key in self._held or self._path(key).exists()

    def time_ms(self, task: Task) -> float | None:
        """The task's time on the shape set that is timed."""
        key = self._key(task)
        if key not in self._held:
            self._held[key] = self._load_or_measure(task, key)
        return self._held[key]

    def keep(self, task: Task, time_ms: float) -> None:
        """Take over a time that was measured elsewhere, where there is none yet."""
        key = self._key(task)
        if self._kept(key) in (None, (None,)):
            self._write(task, key, time_ms)
            self._held.pop(key, None)

    def _load_or_measure(self, task: Task, key: str) -> float | None:
        kept = self._kept(key)
        if kept is not None:
            return kept[0]
        with slot(self._path(key).parent / "measuring", 1):  # of one in 256 others, too
            kept = self._kept(key)
            if kept is not None:
                return kept[0]
            measured = self._measure(task)
            self._write(task, key, measured)
            return measured

    def _kept(self, key: str) -> tuple[float | None] | None:
        """The time on disk, which may be that there is none; None where it is not there yet, or
        damaged."""
        try:
            found = json.loads(self._path(key).read_text())["time_ms"]
            return (None if found is None else float(found),)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, task: Task, key: str, time_ms: float | None) -> None:
        write_json_atomic(self._path(key), {"task": task.name, "time_ms": time_ms})

    def _key(self, task: Task) -> str:
        return hashlib.sha256(f"{self._salt}\0{task.model_dump_json()}".encode()).hexdigest()

    def _path(self, key: str) -> Path:
        return cache_dir() / "baselines" / key[:2] / f"{key}.json"
