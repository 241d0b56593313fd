"""What a run tells of itself while it goes on: `RunWatch` writes run.json, the heartbeat and the
samples of the machine, and warns of what is wrong with the machine.

It never fails a run: what cannot be written is said once and left out. A run that is a stage of
another leaves the samples to that one.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coding_framework import __version__
from coding_framework.monitoring.alerts import (
    IDLE_S,
    AlertBook,
    Finding,
    disk_nearly_full,
    gpu_idle,
    gpu_throttled,
)
from coding_framework.monitoring.gpu_telemetry import GPUTelemetry
from coding_framework.monitoring.progress import activity, stage
from coding_framework.monitoring.sampler import SystemSampler
from coding_framework.store.events import log
from coding_framework.store.run_status import (
    BEAT_S,
    Ended,
    Heartbeat,
    RunIdentity,
    SystemSample,
    append_system,
    parent_of,
    process_started,
    read_identity,
    run_state,
    write_heartbeat,
    write_identity,
)

SAMPLE_S = 2.0
COST_SHARE = 0.01
"""Most of one core's time that sampling takes: it looks less often where a look costs more."""
_JOIN_S = 1.0
"""Most that the end of a run waits for a look at the machine that hangs."""


class RunWatch(AbstractContextManager["RunWatch"]):
    """Tells of the run in a folder for as long as the block runs.

    kind: what the run is. judge: its backend, sandbox, protocol, as far as they are known.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        judge: Mapping[str, str] | None = None,
        *,
        beat_s: float = BEAT_S,
        sample_s: float = SAMPLE_S,
    ) -> None:
        self._folder, self._kind, self._judge = folder, kind, dict(judge or {})
        self._beat_s, self._sample_s = beat_s, sample_s
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._faults: set[str] = set()
        self._started = process_started()

    def __enter__(self) -> Self:
        parent = parent_of(self._folder)
        self._quietly(lambda: write_identity(self._folder, self._identity(parent)))
        self._quietly(self._beat)
        self._every("heartbeat", self._beat_on)
        if parent is None or run_state(parent) != "alive":
            self._every("system-sampler", self._sample_on)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_JOIN_S)
        ended: Ended = "finished"
        if error is not None:
            ended = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        self._quietly(lambda: self._beat(ended))

    def _every(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _quietly(self, work: Callable[[], None]) -> None:
        """Nothing that a watcher does may end the run; each kind of fault is said once."""
        try:
            work()
        except Exception as e:
            if (kind := type(e).__name__) not in self._faults:
                self._faults.add(kind)
                log.warning("watch_fault", reason=f"{kind}: {e}")

    # --- the heartbeat

    def _beat_on(self) -> None:
        while not self._stop.wait(self._beat_s):
            self._quietly(self._beat)

    def _beat(self, ended: Ended | None = None) -> None:
        doing = activity()
        told: dict[str, Any] = {"stage": stage()}
        if doing is not None:
            names = ("stage", "step", "of", "unit", "rate", "eta_s", "note")
            told = {name: getattr(doing, name) for name in names}
        beat = Heartbeat(
            at=round(time.time(), 3),
            host=socket.gethostname(),
            pid=os.getpid(),
            start_time=self._started,
            ended=ended,
            **told,
        )
        write_heartbeat(self._folder, beat)

    # --- samples of the machine

    def _sample_on(self) -> None:
        self._quietly(self._sample_until_stopped)

    def _sample_until_stopped(self) -> None:
        sampler = SystemSampler(self._folder)
        book = AlertBook(self._folder)
        recent: deque[SystemSample] = deque(maxlen=round(2 * IDLE_S / self._sample_s))
        learning: deque[SystemSample] = deque(maxlen=recent.maxlen)
        cost_s = 0.0
        while not self._stop.wait(pause_s(self._sample_s, cost_s)):
            before = time.thread_time()
            self._quietly(lambda: self._look(sampler, book, recent, learning))
            cost_s = time.thread_time() - before

    def _look(
        self,
        sampler: SystemSampler,
        book: AlertBook,
        recent: deque[SystemSample],
        learning: deque[SystemSample],
    ) -> None:
        sample = sampler.sample()
        recent.append(sample)
        doing = activity()
        if doing is not None and doing.training and doing.rate is not None:
            learning.append(sample)
        else:  # a model is being loaded, or evaluated
            learning.clear()
        book.note(_found(recent, learning))
        append_system(self._folder, sample)

    # --- run.json

    def _identity(self, parent: Path | None) -> RunIdentity:
        earlier = read_identity(self._folder)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return RunIdentity(
            kind=self._kind,
            command=tuple(sys.argv),
            version=__version__,
            commit=_commit(),
            host=socket.gethostname(),
            pid=os.getpid(),
            process_started=self._started,
            started_at=earlier.started_at if earlier is not None else now,
            starts=earlier.starts + 1 if earlier is not None else 1,
            python=platform.python_version(),
            torch=_installed("torch"),
            cuda=_installed("cuda-bindings"),
            gpus=GPUTelemetry().identities(),
            judge=self._judge,
            parent=os.path.relpath(parent, self._folder.resolve()) if parent is not None else None,
        )


def pause_s(wanted_s: float, cost_s: float) -> float:
    """Until the next look, after one that took `cost_s` of a core."""
    return max(wanted_s, cost_s / COST_SHARE)


def _found(recent: deque[SystemSample], learning: deque[SystemSample]) -> list[Finding]:
    last = list(recent)
    found = (disk_nearly_full(last), gpu_throttled(last), gpu_idle(list(learning)))
    return [f for f in found if f is not None]


def _installed(name: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def _commit() -> str | None:
    """Of the repository that this package lies in."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True)
        return answer.stdout.strip() or None
    return None
