"""What a server asks of a rollout for each request: who answers, and that it is written down.

    assign (a hash, no waiting) -> expose (durable before the request goes upstream)
      -> the answer -> finish (durable before the answer's last byte)

A thread commits what all requests of the process write, in groups. Serving never depends on the
experiment: where the database cannot be written, the incumbent answers, nothing is exposed, and
the experiments are paused as soon as that can be written.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from coding_framework.deployment.ab_testing import (
    Assignment,
    Endpoint,
    Experiment,
    Shadow,
    TrafficRouter,
    unit_of,
)
from coding_framework.deployment.manager import ABTestManager, Seen, add_pair, expose
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.store import (
    SERVING,
    ConflictError,
    DeploymentStore,
    Transaction,
)
from coding_framework.store.databases import StorageError

T = TypeVar("T")
_GROUP = 32
_POLL_S = 0.1
_PROBE_S = 1.0
_BACKLOG = 10_000
"""Outcomes that wait for the database to come back; older ones are lost, which counts as errors."""
_SECRET_BYTES = 32


def server_secret(database: Path) -> bytes:
    """The key of the units' hashes, beside the database; made where it is missing. All processes
    of a server share it, and a rollout needs it to stay."""
    path = database.with_name(f"{database.name}.secret")
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        if not path.exists():
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_SECRET_BYTES))
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(new, path)
            os.unlink(new)
        return path.read_bytes()
    except OSError as e:
        raise StorageError(
            f"{path} cannot be read or made ({e.strerror}): give this user the right to its folder"
        ) from e


def snapshot(store: DeploymentStore, manager: ABTestManager) -> TrafficRouter:
    """The router of what the database says now."""
    endpoints = {}
    for row in store.endpoints():
        experiment = shadow = None
        active = store.active_experiment(row.alias)
        if active is not None and active.state in SERVING:
            config = manager.config(active)
            experiment = Experiment(
                id=active.id, salt_enrol=active.salt_enrol, salt_arm=active.salt_arm,
                enrolment=active.enrolment, split=config.split, candidate=config.candidate.version,
            )  # fmt: skip
        elif active is not None and active.state == "SHADOW":
            config = manager.config(active)
            shadow = Shadow(
                experiment=active.id, candidate=config.candidate.version,
                share=config.shadow_share, salt=active.salt_enrol,
            )  # fmt: skip
        endpoints[row.alias] = Endpoint(
            incumbent=row.incumbent, generation=row.generation, experiment=experiment, shadow=shadow
        )
    return TrafficRouter(endpoints)


class Traffic:
    """Each alias has one version, and nothing is written. `LiveTraffic`: as a database says."""

    failure: str | None = None
    """Why no request is enrolled now, in one sentence; None: the database works."""

    def __init__(self, versions: Mapping[str, str]) -> None:
        """versions: by alias."""
        fixed = {a: Endpoint(incumbent=v, generation=0) for a, v in versions.items()}
        self._router = TrafficRouter(fixed)
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self.on_commit: Callable[[int, float], None] = lambda events, seconds: None
        """Told of each group that was committed: how many, and how long it took."""

    @property
    def seen(self) -> Sequence[Seen]:
        """The newest rollout of each alias."""
        return ()

    def close(self) -> None:
        """Write what is waiting, and end."""

    def unit(self, value: str) -> bytes:
        """A unit's hash: of a user, a session or a task. The value itself is never stored."""
        return unit_of(self._secret, value)

    def assign(self, alias: str, unit: bytes) -> Assignment:
        """Who answers; nothing is written. Raises KeyError for an unknown alias."""
        if self.failure is not None:
            return self._router.without_rollout(alias)
        return self._router.route(alias, unit)

    def without_rollout(self, alias: str) -> Assignment:
        """The incumbent, outside of any rollout. Raises KeyError for an unknown alias."""
        return self._router.without_rollout(alias)

    def shadow(self, alias: str, unit: bytes) -> Shadow | None:
        """The candidate that is to answer this request as well, unseen (`pair`); None: none."""
        return None if self.failure is not None else self._router.shadow(alias, unit)

    def expose(
        self, alias: str, unit: bytes, request: str, assignment: Assignment
    ) -> Future[Assignment]:
        """Write the exposure of an enrolled unit; who answers now, which is the incumbent where it
        could not be written or the rollout is over. Wait for it before asking the model."""
        return _known(assignment)

    def finish(self, request: str, outcome: Outcome) -> Future[bool]:
        """Write the outcome of an exposed request; False where it has one. Wait for it before the
        answer's last byte. Where the database fails it is False at once, and written later."""
        return _known(True)

    def pair(
        self, shadow: Shadow, unit: bytes, request: str, incumbent: Outcome, candidate: Outcome
    ) -> Future[bool]:
        """Write both outcomes of a request that both versions answered."""
        return _known(True)


def _known(value: T) -> Future[T]:
    done: Future[T] = Future()
    done.set_result(value)
    return done


@dataclass(slots=True)
class _Job:
    work: Callable[[Transaction], Any]
    done: Future[Any]
    otherwise: Any
    """Its result where the database fails."""
    again: bool
    """Whether it is tried again then."""


class LiveTraffic(Traffic):
    """One of these a server process. Its methods may be called from any thread or task."""

    def __init__(self, database: Path) -> None:
        """Raises StorageError where the database cannot be opened at the start."""
        super().__init__({})
        self._reading, self._writing = DeploymentStore(database), DeploymentStore(database)
        self._secret = server_secret(database)
        self._manager = ABTestManager(self._writing)
        self._router = snapshot(self._reading, self._manager)
        self._changes = self._reading.changes()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._backlog: deque[_Job] = deque(maxlen=_BACKLOG)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"deployment {work.__name__}", daemon=True)
            for work in (self._write, self._follow)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """See Traffic."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._reading.close()
        self._writing.close()

    def expose(
        self, alias: str, unit: bytes, request: str, assignment: Assignment
    ) -> Future[Assignment]:
        """See Traffic."""
        experiment = assignment.experiment
        if experiment is None:
            return _known(assignment)

        def work(tx: Transaction) -> Assignment:
            kept = expose(tx, experiment, unit, assignment.variant, request)
            return assignment if kept else self._router.without_rollout(alias)

        return self._submit(work, otherwise=self._router.without_rollout(alias))

    def finish(self, request: str, outcome: Outcome) -> Future[bool]:
        """See Traffic."""
        body = outcome.model_dump_json()
        return self._submit(lambda tx: tx.add_outcome(request, body), otherwise=False, again=True)

    def pair(
        self, shadow: Shadow, unit: bytes, request: str, incumbent: Outcome, candidate: Outcome
    ) -> Future[bool]:
        """See Traffic."""
        return self._submit(
            lambda tx: add_pair(tx, shadow.experiment, unit, request, incumbent, candidate),
            otherwise=False,
        )

    def _submit(
        self, work: Callable[[Transaction], T], *, otherwise: T, again: bool = False
    ) -> Future[T]:
        job = _Job(work, Future(), otherwise, again)
        if self.failure is not None:
            self._set_aside(job)
        else:
            self._jobs.put(job)
        return job.done

    def _set_aside(self, job: _Job) -> None:
        """The database fails: answer the caller, and keep what can be written later."""
        if job.again:
            self._backlog.append(job)
        if not job.done.cancelled():
            job.done.set_result(job.otherwise)

    # --- the thread that writes -----------------------------------------------------------------

    def _write(self) -> None:
        while not (self._stop.is_set() and self._jobs.empty()):
            jobs = self._group()
            if jobs:
                self._commit(jobs)
            elif self.failure is not None:
                self._probe()

    def _group(self) -> list[_Job]:
        """What to commit together: the first job that comes, and what else is there by then."""
        jobs: list[_Job] = []
        with contextlib.suppress(queue.Empty):
            jobs.append(self._jobs.get(timeout=_POLL_S if self.failure is None else _PROBE_S))
            while len(jobs) < _GROUP:
                jobs.append(self._jobs.get_nowait())
        return jobs

    def _commit(self, jobs: list[_Job]) -> None:
        jobs = [job for job in jobs if job.done.set_running_or_notify_cancel()]
        started = time.monotonic()
        try:
            with self._writing.transaction() as tx:
                results = [job.work(tx) for job in jobs]
            self.on_commit(len(jobs), time.monotonic() - started)
        except StorageError as e:
            self.failure = str(e)
            for job in jobs:
                self._set_aside(job)
            return
        except Exception as e:  # a bug of ours: its callers must hear of it, the thread goes on
            for job in jobs:
                job.done.set_exception(e)
            return
        for job, result in zip(jobs, results, strict=True):
            job.done.set_result(result)

    def _probe(self) -> None:
        """Is the database back? Then write what waits, and pause what was running meanwhile."""
        waiting = list(self._backlog)
        try:
            with self._writing.transaction() as tx:
                for job in waiting:
                    job.work(tx)
            for _ in waiting:
                self._backlog.popleft()
            for row in self._writing.experiments():
                if row.state in ("SHADOW", *SERVING):
                    with contextlib.suppress(ConflictError):
                        self._manager.pause(row.id, "storage", actor="server")
            self._router = snapshot(self._reading, self._manager)
            self.failure = None
        except StorageError as e:
            self.failure = str(e)

    # --- the thread that follows ----------------------------------------------------------------

    def _follow(self) -> None:
        """Decisions of other processes are in force here soon after they were written."""
        while not self._stop.wait(_POLL_S):
            try:
                seen = self._reading.changes()
                if seen != self._changes:
                    self._router, self._changes = snapshot(self._reading, self._manager), seen
            except StorageError as e:
                self.failure = str(e)
