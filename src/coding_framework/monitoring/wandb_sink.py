"""Sends figures to wandb where that is wanted. A failure of wandb never ends the work.

It is off without a key. All that is sent is in the run's JSON lines too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import structlog

from coding_framework.paths import write_atomic

log = structlog.get_logger(__name__)

KEY = "WANDB_API_KEY"


def wandb_wanted(given: bool | None) -> bool:
    """Whether to report: as it was said, else where a key is set."""
    return bool(os.environ.get(KEY)) if given is None else given


class WandbSink:
    """Reports the run in `folder` as one run of a wandb project. A context manager. Without a key
    wandb's offline mode keeps the figures in the folder. The first failure is logged and ends the
    reporting."""

    def __init__(
        self, project: str, folder: Path, config: Mapping[str, Any], *, wanted: bool
    ) -> None:
        self._project, self._folder, self._config = project, folder, config
        self._wanted = wanted
        self._run: Any = None

    def __enter__(self) -> Self:
        if self._wanted:
            try:
                import wandb

                self._run = wandb.init(
                    project=self._project,
                    name=f"{self._folder.parent.name}/{self._folder.name}",
                    id=self._id(),
                    resume="allow",  # a rerun of the same folder goes on with the same curves
                    dir=str(self._folder),
                    config=dict(self._config),
                    mode="online" if os.environ.get(KEY) else "offline",
                    settings=wandb.Settings(silent=True),
                )
            except Exception as e:  # a foreign service: training goes on without it
                self._give_up(e)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._run is not None:
            try:
                self._run.finish(exit_code=0 if error is None else 1)
            except Exception as e:
                self._give_up(e)

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Send the numbers of a record, nested names joined by "/"."""
        if self._run is None:
            return
        try:
            self._run.log(dict(flat_numbers(values)), step=step)
        except Exception as e:
            self._give_up(e)

    def summarise(self, values: Mapping[str, Any]) -> None:
        """Set the numbers that the run ended with."""
        if self._run is None:
            return
        try:
            self._run.summary.update(dict(flat_numbers(values)))
        except Exception as e:
            self._give_up(e)

    def table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send records of equal fields as a table."""
        if self._run is None or not rows:
            return
        try:
            import wandb

            columns = list(rows[0])
            data = [[row[column] for column in columns] for row in rows]
            self._run.log({name: wandb.Table(columns=columns, data=data)})
        except Exception as e:
            self._give_up(e)

    def file(self, path: Path, kind: str) -> None:
        """Send a file as an artifact."""
        if self._run is None:
            return
        try:
            self._run.log_artifact(str(path), name=path.name, type=kind)
        except Exception as e:
            self._give_up(e)

    def _id(self) -> str:
        """Drawn at the folder's first run and kept there."""
        path = self._folder / "wandb_id"
        if not path.exists():
            write_atomic(path, uuid4().hex)
        return path.read_text(encoding="utf-8")

    def _give_up(self, error: Exception) -> None:
        self._run = None
        log.warning("wandb_left_out", reason=f"{type(error).__name__}: {error}")


def flat_numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """("a/b", number) of every number in nested mappings."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
