"""The one process of a host that moves experiments: it does what their logs demand.

Every server process has a `Controller`; the one that holds the lock acts, and when it is killed
the kernel drops its lock and another takes over.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import structlog

from coding_framework.deployment.live_traffic import LiveTraffic
from coding_framework.deployment.manager import ABTestManager
from coding_framework.deployment.store import (
    ConflictError,
    DeploymentStore,
    ExperimentRow,
    StorageError,
)

EVERY_S = 0.25
_log = structlog.get_logger(__name__)


class Controller:
    """Follows all active experiments of a database, in a thread."""

    def __init__(self, database: Path) -> None:
        self._store = DeploymentStore(database)
        self.manager = ABTestManager(self._store)
        self._path = database.with_name("controller.lock")
        self._lock: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deployment controller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End, and let another process take over."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._store.close()

    @property
    def acts(self) -> bool:
        """Whether this process holds the lock."""
        return self._lock is not None

    def step(self) -> list[ExperimentRow]:
        """Once over all active experiments; those that moved. Nothing without the lock."""
        if not self._locked():
            return []
        moved = []
        for row in self._store.experiments():
            if row.state in ("SHADOW", "RAMPING", "HOLDING", "PAUSED"):
                found = self._act(row)
                if found is not None:
                    moved.append(found)
        return moved

    def _act(self, row: ExperimentRow) -> ExperimentRow | None:
        try:
            moved = self.manager.act(row.id)
        except ConflictError as e:
            _log.info("experiment_moved_by_another", experiment=row.id, said=str(e))
            return None
        if moved is not None:
            _log.info(
                "experiment_moved", experiment=row.id, alias=row.alias, before=row.state,
                after=moved.state, step=moved.step, reason=moved.reason,
            )  # fmt: skip
        return moved

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self.step()
            except StorageError as e:
                _log.warning("controller_cannot_write", said=str(e))
            except Exception:  # of one rollout: the thread must go on for the others
                _log.exception("controller_failed")

    def _locked(self) -> bool:
        if self._lock is not None:
            return True
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._lock = handle
        return True


class DecidedTraffic(LiveTraffic):
    """The traffic of a server process that also takes its turn at deciding."""

    def __init__(self, database: Path) -> None:
        super().__init__(database)
        self._controller = Controller(database)
        self._controller.start()

    def close(self) -> None:
        self._controller.close()
        super().close()
