"""What a judge does, a line every few seconds in the run's judge.jsonl: its queue, its rate, how
long candidates are compiled, judged and wait.

It counts as long as it has a run to tell it to, and never fails a verdict.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from coding_framework.errors import InfrastructureError
from coding_framework.store.events import log
from coding_framework.store.run_status import JudgeSample, append_judge
from coding_framework.types import Verdict

EVERY_S = 5.0
_LAST = 200
"""Verdicts that quantiles are taken of."""


@dataclass(slots=True, eq=False)
class Job:
    """A candidate on its way through the judge."""

    came: float
    began: float | None = None


class JudgeWatch:
    """Counts what one judge does, and tells it to the run in `run`; None: to nobody.

    workers: candidates that it judges at a time. quarantined: which GPUs are left alone, asked at
    each line. Use from any thread.
    """

    def __init__(
        self,
        run: Path | None,
        workers: int,
        quarantined: Callable[[], Iterable[str]] = tuple,
        every_s: float = EVERY_S,
    ) -> None:
        self._run, self._workers, self._every_s = run, workers, every_s
        self._quarantined = quarantined
        self._pool = f"{socket.gethostname()}/{os.getpid()}"
        self._lock = threading.Lock()
        self._jobs: set[Job] = set()
        self._done = self._cached = self._faults = 0
        self._statuses: Counter[str] = Counter()
        self._compile_s: deque[float] = deque(maxlen=_LAST)
        self._judge_s: deque[float] = deque(maxlen=_LAST)
        self._wait_s: deque[float] = deque(maxlen=_LAST)
        self._told = (time.monotonic(), 0)
        self._changed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self) -> Job:
        """A candidate waits."""
        job = Job(time.monotonic())
        with self._lock:
            self._jobs.add(job)
            self._changed = True
            if self._thread is None and self._run is not None:
                self._thread = threading.Thread(
                    target=self._tell_on, name="judge-watch", daemon=True
                )
                self._thread.start()
        return job

    def began(self, job: Job) -> None:
        """It is being judged."""
        job.began = time.monotonic()

    def ended(self, job: Job, verdict: Verdict, *, known: bool) -> None:
        """It has its verdict. known: from before."""
        with self._lock:
            self._done += 1
            self._cached += known
            self._statuses[verdict.status.value] += 1
            self._wait_s.append((job.began or job.came) - job.came)
            if not known:
                compile_s = verdict.compile.latency_s if verdict.compile is not None else 0.0
                self._compile_s.append(compile_s)
                self._judge_s.append(max(0.0, verdict.receipt.duration_s - compile_s))

    def failed(self) -> None:
        """A candidate has no verdict, by a fault of ours."""
        with self._lock:
            self._faults += 1

    def leave(self, job: Job) -> None:
        """It is gone, however it ended."""
        with self._lock:
            self._jobs.discard(job)
            self._changed = True

    def close(self) -> None:
        """Tell the rest."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def sample(self) -> JudgeSample:
        """What it does now."""
        now = time.monotonic()
        with self._lock:
            before, done_before = self._told
            self._told = (now, self._done)
            running = sum(job.began is not None for job in self._jobs)
            return JudgeSample(
                t=round(time.time(), 3),
                pool=self._pool,
                queued=len(self._jobs) - running,
                running=running,
                workers=self._workers,
                done=self._done,
                done_per_s=round((self._done - done_before) / max(now - before, 1e-3), 3),
                statuses=dict(self._statuses),
                compile_s=_quantiles(self._compile_s),
                judge_s=_quantiles(self._judge_s),
                wait_s=_quantiles(self._wait_s),
                cache_hits=self._cached,
                faults=self._faults,
                gpus_quarantined=tuple(self._quarantined()),
            )

    def _tell_on(self) -> None:
        try:
            while not self._stop.wait(self._every_s):
                if self._changed or self._jobs:  # an idle judge says nothing new
                    self._tell()
            if self._changed:
                self._tell()
        except (InfrastructureError, OSError) as e:
            log.warning("judge_watch_ended", reason=str(e))

    def _tell(self) -> None:
        self._changed = False
        if self._run is not None:
            append_judge(self._run, self.sample())


def _quantiles(values: Iterable[float]) -> dict[str, float]:
    """ "p50" and "p95" (nearest rank); {} where there is none."""
    ordered = sorted(values)
    if not ordered:
        return {}
    ranks = {"p50": 0.5, "p95": 0.95}
    return {
        name: round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 4)
        for name, share in ranks.items()
    }
