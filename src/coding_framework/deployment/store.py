"""The deployment database: one SQLite file in WAL mode, for the processes of one host.

Events are only ever appended; endpoints and experiments change by compare-and-set, and each change
leaves a row of the audit in the same transaction. All SQL stands here. Every failure of the
database is a `StorageError` that says what to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from coding_framework.deployment.schema import MIGRATIONS
from coding_framework.errors import UsageError
from coding_framework.store import databases
from coding_framework.store.databases import StorageError

R = TypeVar("R")

ACTIVE = ("GATED", "SHADOW", "RAMPING", "HOLDING", "PAUSED")
"""States in which an alias is taken by its experiment."""
SERVING = ("RAMPING", "HOLDING")
"""States in which units are enrolled."""
FINAL = ("PROMOTED", "ROLLED_BACK", "STOPPED")


class ConflictError(UsageError):
    """Somebody else changed the endpoint or experiment first."""


class Event(NamedTuple):
    """One line of the log."""

    seq: int
    id: str
    ts_us: int
    experiment: str | None
    kind: str
    unit: bytes | None
    variant: str | None
    request: str | None
    body: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """An experiment as it stands. `config` is JSON of an `ABTestConfig`."""

    id: str
    alias: str
    config: str
    salt_enrol: str
    salt_arm: str
    state: str
    resume_state: str | None
    step: int
    enrolment: float
    generation: int
    reason: str | None
    created_us: int
    ended_us: int | None


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """What an alias stands for."""

    alias: str
    incumbent: str
    previous: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A registered version; `spec` and `evaluation` are JSON."""

    id: str
    spec: str
    digest: str
    evaluation: str | None
    created_us: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change, who made it and why; before, after and evidence are JSON."""

    seq: int
    ts_us: int
    actor: str
    action: str
    experiment: str | None
    before: str
    after: str
    reason: str
    evidence: str


def canonical(value: Any) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_TABLES: dict[type, str] = {
    Event: "event",
    ExperimentRow: "experiment",
    EndpointRow: "endpoint",
    VersionRow: "version",
    AuditRow: "audit",
}


def _columns(row: type) -> str:
    return ", ".join(row.__match_args__)  # type: ignore[attr-defined]


class Rows:
    """The rows of the database, as a connection or a transaction of it finds them."""

    def _fetched(self, statement: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    def _select(self, row: type[R], where: str, *values: Any) -> list[R]:
        statement = f"SELECT {_columns(row)} FROM {_TABLES[row]} {where}"
        return [row(*found) for found in self._fetched(statement, *values)]

    def experiment(self, experiment: str) -> ExperimentRow:
        """Raises UsageError for an unknown one."""
        for row in self._select(ExperimentRow, "WHERE id=?", experiment):
            return row
        raise UsageError(f"there is no experiment {experiment!r}: `cuda-rl deploy status` has them")

    def endpoint(self, alias: str) -> EndpointRow:
        """Raises UsageError for an unknown alias."""
        for row in self._select(EndpointRow, "WHERE alias=?", alias):
            return row
        raise UsageError(
            f"there is no endpoint {alias!r}: `cuda-rl deploy create {alias} VERSION` makes one"
        )

    def _newest_us(self) -> int:
        """Time of the last event; 0: there is none."""
        newest = self._fetched("SELECT ts_us FROM event ORDER BY seq DESC LIMIT 1")
        return int(newest[0][0]) if newest else 0

    def _events(self, experiment: str, after: int, limit: int = -1) -> list[Event]:
        where = "WHERE experiment=? AND seq>? ORDER BY seq LIMIT ?"
        return self._select(Event, where, experiment, after, limit)


class Transaction(Rows):
    """One write transaction, held alone; all its statements happen or none."""

    def __init__(self, db: sqlite3.Connection, clock: Callable[[], int]) -> None:
        self._db = db
        self.now_us: int = max(clock(), self._newest_us() + 1)
        """Time of the next event, after that of every earlier one."""

    def _fetched(self, statement: str, *values: Any) -> list[Any]:
        return self._db.execute(statement, values).fetchall()

    def add_event(
        self,
        event_id: str,
        kind: str,
        body: str,
        *,
        experiment: str | None = None,
        unit: bytes | None = None,
        variant: str | None = None,
        request: str | None = None,
    ) -> bool:
        """Append an event; False where its id is in the log already."""
        done = self._db.execute(
            "INSERT INTO event(id, ts_us, experiment, kind, unit, variant, request, body)"
            " VALUES(?,?,?,?,?,?,?,?) ON CONFLICT(id) DO NOTHING",
            (event_id, self.now_us, experiment, kind, unit, variant, request, body),
        )
        return self._added(done)

    def add_outcome(self, request: str, body: str) -> bool:
        """Append the outcome of an exposure; False where there is no such exposure or it has an
        outcome."""
        done = self._db.execute(
            "INSERT INTO event(id, ts_us, experiment, kind, unit, variant, request, body)"
            " SELECT request || ':o', ?, experiment, 'outcome', unit, variant, request, ?"
            " FROM event WHERE id = ? ON CONFLICT(id) DO NOTHING",
            (self.now_us, body, f"{request}:e"),
        )
        return self._added(done)

    def event(self, event_id: str) -> Event | None:
        return next(iter(self._select(Event, "WHERE id=?", event_id)), None)

    def _added(self, done: sqlite3.Cursor) -> bool:
        if done.rowcount == 1:
            self.now_us += 1
            return True
        return False

    def events(self, experiment: str, after: int = 0) -> list[Event]:
        return self._events(experiment, after)

    def state_of(self, experiment: str) -> str:
        found = self._fetched("SELECT state FROM experiment WHERE id=?", experiment)
        return str(found[0][0]) if found else ""

    def add_experiment(self, row: ExperimentRow) -> None:
        self._insert("experiment", asdict(row))

    def move_experiment(self, before: ExperimentRow, **changes: Any) -> ExperimentRow:
        """Change an experiment that is still as it was read. Raises ConflictError."""
        changes["generation"] = before.generation + 1
        names = ", ".join(f"{name}=?" for name in changes)
        try:
            done = self._db.execute(
                f"UPDATE experiment SET {names} WHERE id=? AND state=? AND generation=?",
                (*changes.values(), before.id, before.state, before.generation),
            )
        except sqlite3.IntegrityError as e:
            raise ConflictError(
                f"{before.alias} has another active experiment: end that one first"
            ) from e
        if done.rowcount != 1:
            raise ConflictError(
                f"experiment {before.id} is no longer {before.state}: look at its status again"
            )
        return self.experiment(before.id)

    def add_endpoint(self, alias: str, incumbent: str) -> EndpointRow:
        row = EndpointRow(alias=alias, incumbent=incumbent, previous=None, generation=1)
        self._insert("endpoint", asdict(row))
        return row

    def move_endpoint(self, before: EndpointRow, incumbent: str | None = None) -> EndpointRow:
        """Raise the generation, and put another version in. Raises ConflictError."""
        changed = incumbent is not None and incumbent != before.incumbent
        done = self._db.execute(
            "UPDATE endpoint SET incumbent=?, previous=?, generation=generation+1"
            " WHERE alias=? AND incumbent=? AND generation=?",
            (
                incumbent if changed else before.incumbent,
                before.incumbent if changed else before.previous,
                before.alias, before.incumbent, before.generation,
            ),
        )  # fmt: skip
        if done.rowcount != 1:
            raise ConflictError(f"{before.alias} was changed meanwhile: look at its status again")
        return self.endpoint(before.alias)

    def add_version(self, row: VersionRow) -> None:
        """Raises ConflictError where the id or the digest is taken."""
        try:
            self._insert("version", asdict(row))
        except sqlite3.IntegrityError as e:
            raise ConflictError(
                f"a version {row.id}, or one with the same content, is registered already "
                "(`cuda-rl deploy versions`): use that one"
            ) from e

    def set_evaluation(self, version: str, evaluation: str) -> None:
        self._db.execute("UPDATE version SET evaluation=? WHERE id=?", (evaluation, version))

    def add_audit(
        self,
        actor: str,
        action: str,
        *,
        before: Any,
        after: Any,
        reason: str,
        evidence: Any,
        experiment: str | None = None,
    ) -> None:
        """Write down a change."""
        self._insert("audit", {
            "ts_us": self.now_us, "actor": actor, "action": action, "experiment": experiment,
            "before": canonical(before), "after": canonical(after), "reason": reason,
            "evidence": canonical(evidence),
        })  # fmt: skip

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        names, marks = ", ".join(values), ",".join("?" * len(values))
        self._db.execute(f"INSERT INTO {table}({names}) VALUES({marks})", tuple(values.values()))


class DeploymentStore(Rows):
    """One connection to the database, for any thread of this process; not for a forked child.

    clock: microseconds, for tests; by default the wall clock's. Where that is set back, the next
    event still comes after the newest one.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        durable: bool = True,
        check: bool = False,
        read_only: bool = False,
    ) -> None:
        """Open the database and bring it up to date; make it where it is missing.

        durable: survive a power cut (False: only a kill). check: read all of it and refuse a
        damaged one. read_only: change nothing, and leave no file beside it. Raises StorageError.
        """
        self.path, self._clock = path, clock
        self._lock = threading.RLock()
        with _told(path):
            if read_only:
                self._db = _opened_to_read(path)
            else:
                self._db = databases.open_database(path, durable=durable)
            if check:
                databases.require_whole(self._db, _damaged(path))
            if not read_only:
                _require_no_archive(self._db, path)
                databases.migrate(self._db, MIGRATIONS)
            databases.require_version(
                self._db, path, len(MIGRATIONS),
                update=f"`cuda-rl deploy status --database {path}` brings it up to date",
            )  # fmt: skip
        self._file = self._identity()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A write transaction: committed at the end of the block, undone on any exception."""
        with self._lock, _told(self.path):
            if self._identity() != self._file:
                raise StorageError(
                    f"{self.path} was deleted or replaced while it was in use: put it back, and "
                    "start the server again"
                )
            with databases.writing(self._db):
                yield Transaction(self._db, self._clock)

    def now_us(self) -> int:
        """The database's time, before any event that is still to come."""
        return self._clock()

    def changes(self) -> int:
        """A number that differs after another connection has written."""
        return int(self._fetched("PRAGMA data_version")[0][0])

    def events(self, experiment: str, after: int = 0) -> Iterator[Event]:
        """Of an experiment, in their order. Reads in pages: never hold the lock between two."""
        while True:
            page = self._events(experiment, after, limit=5000)
            yield from page
            if len(page) < 5000:
                return
            after = page[-1].seq

    def experiments(self, alias: str | None = None) -> list[ExperimentRow]:
        """Oldest first; of one alias or of all."""
        where = "WHERE ? IS NULL OR alias=? ORDER BY created_us"
        return self._select(ExperimentRow, where, alias, alias)

    def active_experiment(self, alias: str) -> ExperimentRow | None:
        return next((e for e in self.experiments(alias) if e.state in ACTIVE), None)

    def endpoints(self) -> list[EndpointRow]:
        return self._select(EndpointRow, "ORDER BY alias")

    def versions(self) -> list[VersionRow]:
        """Oldest first."""
        return self._select(VersionRow, "ORDER BY created_us, id")

    def version(self, version: str) -> VersionRow:
        """Raises UsageError for an unknown one."""
        known = self.versions()
        for row in known:
            if row.id == version:
                return row
        names = ", ".join(row.id for row in known[-10:]) or "none"
        raise UsageError(f"there is no version {version!r}: the registered ones are {names}")

    def audit(self, experiment: str | None = None) -> list[AuditRow]:
        where = "WHERE ? IS NULL OR experiment=? ORDER BY seq"
        return self._select(AuditRow, where, experiment, experiment)

    def _fetched(self, statement: str, *values: Any) -> list[Any]:
        with self._lock, _told(self.path):
            return self._db.execute(statement, values).fetchall()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _opened_to_read(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise StorageError(f"there is no database {path}: `cuda-rl deploy register` makes one")
    return databases.open_to_read(path, briefly=True)


def _damaged(path: Path) -> str:
    return (
        f"{path} is no deployment database, or damaged: copy it away, and put a backup in its "
        f"place, or what `sqlite3 {path} .recover` can read"
    )


def _require_no_archive(db: sqlite3.Connection, path: Path) -> None:
    """Raises StorageError where version 0.1 has moved events into files."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE name='archive'").fetchall()
    if tables and db.execute("SELECT 1 FROM archive").fetchone():
        raise StorageError(
            f"{path} has events in archives, which this version cannot read: open it once with "
            "commit 4b88b277, which brings them back, or delete the rows of its table archive"
        )


def _told(path: Path) -> AbstractContextManager[None]:
    return databases.told(path, _damaged(path))
