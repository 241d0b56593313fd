"""Sends figures to wandb where that is wanted. wandb never holds the work up, and no failure of it
ends the work.

It is off without a key. All that is sent is in the run's files too. A thread of its own speaks to
wandb: the work only puts what is to be sent into a queue, and what the full queue cannot take is
counted and left out.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from coding_framework.paths import write_atomic
from coding_framework.store.events import log
from coding_framework.store.run_status import Alert, SystemSample, parent_of

KEY = "WANDB_API_KEY"
SFT_PROJECT, RL_PROJECT = "CUDA-SFT-Training", "CUDA-MultiTurn-RL"
EVALUATION_PROJECT = "CUDA-Evaluation"
JOBS = {SFT_PROJECT: "sft", RL_PROJECT: "rl", EVALUATION_PROJECT: "eval"}
HELD_UP_S = 1.0
"""Most that the end of the work waits for wandb; what is left is sent while the process goes on."""
LINGER_S = 30.0
"""Most that the end of the process waits for it."""
_ROOM = 1000
"""Of the queue, in calls."""

_unfinished: list[threading.Thread] = []
Rows = Sequence[Mapping[str, Any]]


def wandb_wanted(given: bool | None) -> bool:
    """Whether to report: as it was said, else where a key is set."""
    return bool(os.environ.get(KEY)) if given is None else given


class WandbSink:
    """Reports the run in `folder` as one run of a wandb project. A context manager. Without a key
    wandb's offline mode keeps the figures in the folder. The first failure is logged and ends the
    reporting. Runs that are stages of one share a group, the name of its folder."""

    def __init__(
        self,
        project: str,
        folder: Path,
        config: Mapping[str, Any],
        *,
        wanted: bool,
    ) -> None:
        self._project, self._folder, self._config = project, folder, dict(config)
        self._wanted = wanted
        self._calls: queue.Queue[Callable[[Any], None] | None] = queue.Queue(_ROOM)
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        self._given_up = threading.Event()
        self._exit_code = 0
        self.dropped = 0
        """Calls that were left out because the queue was full."""

    def __enter__(self) -> Self:
        if self._wanted:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(failed=error is not None)

    def end(self, *, failed: bool = False, wait_s: float = HELD_UP_S) -> None:
        """Nothing more will come. wait_s: most that this takes."""
        if not self._wanted:
            return
        self._exit_code = int(failed)
        self._put_end()
        if self.dropped:
            log.warning("wandb_too_slow", calls_left_out=self.dropped)
        if not self.wait(wait_s):
            _unfinished.append(self._thread)

    def wait(self, timeout_s: float) -> bool:
        """Whether, after so long at most, all is sent."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Send the numbers of a record, nested names joined by "/"."""
        numbers = {**named_numbers(values), "step": step}
        self._later(lambda run: run.log(numbers))

    def summarise(self, values: Mapping[str, Any]) -> None:
        """Set the numbers that the run ended with."""
        numbers = dict(flat_numbers(values))
        self._later(lambda run: run.summary.update(numbers))

    def table(self, name: str, rows: Rows | Callable[[], Rows]) -> None:
        """Send records of equal fields as a table. rows: or what makes them, in wandb's thread."""
        self._later(lambda run: _log_table(run, name, rows() if callable(rows) else rows))

    def file(self, path: Path, kind: str) -> None:
        """Send a file as an artifact."""
        self._later(lambda run: run.log_artifact(str(path), name=path.name, type=kind))

    def alert(self, alert: Alert) -> None:
        """Tell of what the run noticed; wandb may send it on by mail."""
        text = f"{alert.text}: {alert.advice}"
        self._later(lambda run: run.alert(title=alert.rule, text=text))

    def _later(self, call: Callable[[Any], None]) -> None:
        if not self._wanted or self._given_up.is_set():
            return
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            self.dropped += 1

    def _put_end(self) -> None:
        with contextlib.suppress(queue.Empty):
            while self._calls.full():
                self._calls.get_nowait()
                self.dropped += 1
        self._calls.put(None)

    # --- in wandb's thread

    def _work(self) -> None:
        try:
            run = self._init()
            while not self._given_up.is_set() and (call := self._calls.get()) is not None:
                call(run)
            run.finish(exit_code=self._exit_code)
        except Exception as e:  # a foreign service: the work goes on without it
            self._given_up.set()
            log.warning("wandb_left_out", reason=f"{type(e).__name__}: {e}")

    def _init(self) -> Any:
        import wandb

        run = wandb.init(
            project=self._project,
            group=(parent_of(self._folder) or self._folder.resolve()).name,
            job_type=JOBS.get(self._project),
            name=f"{self._folder.parent.name}/{self._folder.name}",
            id=self._id(),
            resume="allow",  # a rerun of the same folder goes on with the same curves
            dir=str(self._folder),
            config=self._config,
            mode="online" if os.environ.get(KEY) else "offline",
            settings=wandb.Settings(silent=True),
        )
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        return run

    def _id(self) -> str:
        """Drawn at the folder's first run and kept there."""
        path = self._folder / "wandb_id"
        if not path.exists():
            write_atomic(path, uuid4().hex)
        return path.read_text(encoding="utf-8")


def _log_table(run: Any, name: str, rows: Rows) -> None:
    if not rows:
        return
    import wandb

    columns = list(rows[0])
    data = [[row[column] for column in columns] for row in rows]
    run.log({name: wandb.Table(columns=columns, data=data)})


@atexit.register
def _wait_for_the_rest() -> None:
    deadline = time.monotonic() + LINGER_S
    for thread in _unfinished:
        thread.join(max(0.0, deadline - time.monotonic()))


# --- names ----------------------------------------------------------------------------------------

_RENAMED = (
    (re.compile(r"^(measures/)?reward_parts/"), "reward/parts/"),
    (re.compile(r"^measures/"), ""),
)


def named_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record by wandb's names: our field names, without the record that they are
    grouped in ("measures"), and a reward's parts below the reward."""
    found = {}
    for name, value in flat_numbers(values):
        for pattern, better in _RENAMED:
            name = pattern.sub(better, name)
        found[name] = value
    return found


def system_numbers(sample: SystemSample | None) -> dict[str, Any]:
    """A sample of the machine as it is logged beside a step: `system/gpu.0.util`."""
    if sample is None:
        return {}
    names = ("load", "ram", "swap", "disk_free", "disk_read", "disk_write", "net")
    told = {name: getattr(sample, name) for name in names}
    if sample.cpu:
        told["cpu"] = sum(sample.cpu) / len(sample.cpu)
    for gpu in sample.gpus or ():
        fields = gpu.model_dump(exclude={"index", "uuid", "throttle"})
        told |= {f"gpu.{gpu.index}.{name}": value for name, value in fields.items()}
    return {"system": told}


def flat_numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """("a/b", number) of every number in nested mappings."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
