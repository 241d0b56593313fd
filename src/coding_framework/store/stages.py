"""The manifest of a run of several stages: which are finished, and with which configuration.

Guaranteed: after a SIGKILL the same command finds every finished stage with its result. One process
at a time uses a folder. A folder of another configuration is refused, so that no run mixes two.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import Field, ValidationError

from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic
from coding_framework.store.folder import RunFolder, locked, require_same_run
from coding_framework.types import Record


class MemoryWatch(AbstractContextManager[object], Protocol):
    """What notes the memory of a stage (`monitoring.memory.PeakMemory`)."""

    @property
    def peak_gib(self) -> float: ...


class StageRecord(Record):
    """A finished stage."""

    finished_at: str
    """UTC, ISO 8601."""
    wall_s: float
    """Of all attempts but those that a SIGKILL ended, which could not note their time."""
    peak_memory_gib: float
    """Of all processes of the run while the stage ran."""
    attempts: int = 1
    """How often the stage was started until it finished."""
    result: Mapping[str, Any] = Field(default_factory=dict)


class _File(Record):
    config: Mapping[str, Any]
    started: Mapping[str, int] = Field(default_factory=dict)
    """Attempts by stage."""
    spent_s: Mapping[str, float] = Field(default_factory=dict)
    """Of attempts that failed or were interrupted, by stage."""
    stages: Mapping[str, StageRecord] = Field(default_factory=dict)


class StageManifest:
    """The stages of the run in `folder`. A context manager: it holds the folder's lock."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Raises UsageError where the folder is in use or holds a run of another configuration."""
        self._folder = RunFolder(folder)
        self._config = json.loads(json.dumps(config))
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as lock:
            lock.enter_context(locked(self._folder.lock, self._in_use))
            self._file = self._read()
            self._lock = lock.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _in_use(self, process: str) -> str:
        return (
            f"another run (process {process}) works in {self._folder.root}: wait for it, or choose "
            "another --output-dir"
        )

    @property
    def stages(self) -> Mapping[str, StageRecord]:
        """The finished stages by name."""
        return self._file.stages

    def finished(self, name: str) -> StageRecord | None:
        return self._file.stages.get(name)

    @contextlib.contextmanager
    def stage(self, name: str, memory: MemoryWatch) -> Iterator[dict[str, Any]]:
        """Runs a stage: what the body puts in the dict is the result, stored when it ends well.
        memory: is entered for as long as the stage runs."""
        attempts = self._file.started.get(name, 0) + 1
        self._store(started={**self._file.started, name: attempts})
        before = self._file.spent_s.get(name, 0.0)
        result: dict[str, Any] = {}
        start = time.monotonic()
        try:
            with memory:
                yield result
        except BaseException:
            spent = round(before + time.monotonic() - start, 2)
            self._store(spent_s={**self._file.spent_s, name: spent})
            raise
        record = StageRecord(
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            wall_s=round(before + time.monotonic() - start, 2),
            peak_memory_gib=round(memory.peak_gib, 3),
            attempts=attempts,
            result=result,
        )
        self._store(stages={**self._file.stages, name: record})

    def _read(self) -> _File:
        if not self._folder.stages.exists():
            file = _File(config=self._config)
            write_atomic(self._folder.stages, file.model_dump_json(indent=2))
            return file
        try:
            file = _File.model_validate_json(self._folder.stages.read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError) as e:
            raise UsageError(
                f"{self._folder.stages} is not a run's manifest: choose another --output-dir, "
                f"or delete {self._folder.root}"
            ) from e
        require_same_run(self._folder.root, file.config, self._config)
        return file

    def _store(self, **changes: Any) -> None:
        self._file = self._file.model_copy(update=changes)
        write_atomic(self._folder.stages, self._file.model_dump_json(indent=2))
