"""The one process of a host that moves experiments: it does what their logs demand.

Every server process has a `Controller`; the one that holds the lock acts, and when it is killed
the kernel drops its lock and another takes over.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from coding_framework.cuda.toolchain.slots import try_lock
from coding_framework.deployment.live_traffic import LiveTraffic
from coding_framework.deployment.manager import ABTestManager, Seen
from coding_framework.deployment.store import (
    ConflictError,
    DeploymentStore,
    ExperimentRow,
)
from coding_framework.store.databases import StorageError
from coding_framework.store.events import log

EVERY_S = 0.25
NOTICE_S = 1.0
_RUNNING = ("SHADOW", "RAMPING", "HOLDING", "PAUSED")


class Controller:
    """Follows all active experiments of a database, in a thread."""

    def __init__(self, database: Path) -> None:
        self._store = DeploymentStore(database)
        self.manager = ABTestManager(self._store)
        self._path = database.with_name(f"{database.name}.controller.lock")
        self._lock: int | None = None
        self.seen: tuple[Seen, ...] = ()
        self._notice_at = 0.0
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
            if row.state in _RUNNING:
                found = self._act(row)
                if found is not None:
                    moved.append(found)
        return moved

    def notice(self) -> None:
        """Look at every alias's newest rollout (`seen`). Every process does."""
        newest = {row.alias: row for row in self._store.experiments() if row.state != "DRAFT"}
        seen = []
        for row in newest.values():
            if row.state not in _RUNNING:
                seen.append(Seen(row, None))
                continue
            seen.append(Seen(row, self.manager.observe(row.id)))
        self.seen = tuple(seen)

    def _act(self, row: ExperimentRow) -> ExperimentRow | None:
        try:
            moved = self.manager.act(row.id)
        except ConflictError as e:
            log.info("experiment_moved_by_another", experiment=row.id, said=str(e))
            return None
        if moved is not None:
            log.info(
                "experiment_moved", experiment=row.id, alias=row.alias, before=row.state,
                after=moved.state, step=moved.step, reason=moved.reason,
            )  # fmt: skip
        return moved

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self.step()
                if time.monotonic() >= self._notice_at:
                    self._notice_at = time.monotonic() + NOTICE_S
                    self.notice()
            except StorageError as e:
                log.warning("controller_cannot_write", said=str(e))
            except Exception:  # of one rollout: the thread must go on for the others
                log.exception("controller_failed")

    def _locked(self) -> bool:
        if self._lock is None:
            self._lock = try_lock(self._path)
        return self.acts


class DecidedTraffic(LiveTraffic):
    """The traffic of a server process that also takes its turn at deciding."""

    def __init__(self, database: Path) -> None:
        super().__init__(database)
        self._controller = Controller(database)
        self._controller.start()

    @property
    def seen(self) -> tuple[Seen, ...]:
        """See Traffic.seen."""
        return self._controller.seen

    def close(self) -> None:
        self._controller.close()
        super().close()
