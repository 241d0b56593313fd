"""The SQLite file of a registry: which kernel is verified for which task, and what became of it.

WAL, numbered migrations. Statuses change by compare-and-set, each change leaves a row of history.
Every failure is a StorageError that says what to do.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, get_args

from coding_framework.errors import UsageError
from coding_framework.registry.files import DamagedError
from coding_framework.registry.records import KernelStatus
from coding_framework.store import databases

_FIRST = """
CREATE TABLE entry(kernel TEXT NOT NULL, task TEXT NOT NULL, op TEXT NOT NULL,
  suffix TEXT NOT NULL CHECK(suffix IN ('cu','py')), status TEXT NOT NULL,
  added_us INTEGER NOT NULL, PRIMARY KEY(kernel, task)) WITHOUT ROWID;
CREATE INDEX entry_by_op ON entry(op);
CREATE TABLE receipt(sha256 TEXT PRIMARY KEY, kernel TEXT NOT NULL, task TEXT NOT NULL,
  body TEXT NOT NULL, added_us INTEGER NOT NULL,
  FOREIGN KEY(kernel, task) REFERENCES entry(kernel, task));
CREATE INDEX receipt_by_entry ON receipt(kernel, task);
CREATE TABLE refusal(receipt TEXT NOT NULL REFERENCES receipt(sha256), shape_key TEXT NOT NULL,
  obstacle TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY(receipt, shape_key)) WITHOUT ROWID;
CREATE TABLE history(seq INTEGER PRIMARY KEY AUTOINCREMENT, ts_us INTEGER NOT NULL,
  kernel TEXT NOT NULL, task TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL,
  reason TEXT NOT NULL);
"""
MIGRATIONS = (_FIRST,)
"""Number N brings a database from version N to N + 1. Never edit one that was released: add one."""


class ConflictError(UsageError):
    """Somebody else changed the entry first."""


class EntryRow(NamedTuple):
    """A kernel for a task."""

    kernel: str
    task: str
    op: str
    suffix: str
    status: KernelStatus
    added_us: int


class ReceiptRow(NamedTuple):
    """`body` is the receipt's JSON as it was signed."""

    sha256: str
    kernel: str
    task: str
    body: str
    added_us: int


class RefusalRow(NamedTuple):
    """Why a shape key of a receipt has no template."""

    receipt: str
    shape_key: str
    obstacle: str
    reason: str


class HistoryRow(NamedTuple):
    """One change of a status."""

    seq: int
    ts_us: int
    kernel: str
    task: str
    before: str
    after: str
    reason: str


class RegistryDatabase:
    """One connection; for one thread at a time, and not for a forked child."""

    def __init__(self, path: Path, *, read_only: bool = False, briefly: bool = False) -> None:
        """Open the database and bring it up to date; make it where it is missing. read_only: only
        look, also where neither the file nor its folder can be written. briefly: for so short a
        look that nobody changes the database meanwhile; it leaves no file beside it."""
        self.path = path
        with _told(path):
            if read_only:
                self._db = databases.open_to_read(path, briefly=briefly)
            else:
                self._db = databases.open_database(path)
                databases.migrate(self._db, MIGRATIONS)
            databases.require_version(
                self._db, path, len(MIGRATIONS), update="open it where it can be written"
            )

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    # --- reading ----------------------------------------------------------------------------------

    def entries(self, kernel: str | None = None) -> list[EntryRow]:
        """By op, then oldest first; of one kernel or of all. Raises DamagedError for a status that
        there is not."""
        with _told(self.path):
            rows = self._db.execute(
                "SELECT kernel, task, op, suffix, status, added_us FROM entry"
                " WHERE ? IS NULL OR kernel=? ORDER BY op, added_us, kernel, task",
                (kernel, kernel),
            ).fetchall()
        for row in rows:
            if row[4] not in get_args(KernelStatus):
                raise DamagedError(_damaged(self.path))
        return [EntryRow(*row) for row in rows]

    def receipts(self, kernel: str | None = None) -> list[ReceiptRow]:
        """Oldest first; of one kernel or of all."""
        with _told(self.path):
            rows = self._db.execute(
                "SELECT sha256, kernel, task, body, added_us FROM receipt"
                " WHERE ? IS NULL OR kernel=? ORDER BY added_us, sha256",
                (kernel, kernel),
            ).fetchall()
        return [ReceiptRow(*row) for row in rows]

    def refusals(self) -> list[RefusalRow]:
        with _told(self.path):
            rows = self._db.execute(
                "SELECT receipt, shape_key, obstacle, reason FROM refusal"
            ).fetchall()
        return [RefusalRow(*row) for row in rows]

    def history(self, kernel: str) -> list[HistoryRow]:
        """Of one kernel, oldest first."""
        with _told(self.path):
            rows = self._db.execute(
                "SELECT seq, ts_us, kernel, task, before, after, reason FROM history"
                " WHERE kernel=? ORDER BY seq",
                (kernel,),
            ).fetchall()
        return [HistoryRow(*row) for row in rows]

    def require_whole(self) -> None:
        """Raises StorageError where the file is damaged."""
        with _told(self.path):
            databases.require_whole(self._db, _damaged(self.path))

    # --- writing ----------------------------------------------------------------------------------

    def add(
        self, entry: EntryRow, receipt: ReceiptRow, refusals: list[tuple[str, str, str]]
    ) -> bool:
        """An entry with a receipt; what is there already stays as it is. Gives whether the entry is
        new. refusals: shape key, obstacle and reason."""
        with self._transaction() as db:
            done = db.execute(
                "INSERT INTO entry(kernel, task, op, suffix, status, added_us)"
                " VALUES(?,?,?,?,?,?) ON CONFLICT(kernel, task) DO NOTHING",
                entry,
            )
            db.execute(
                "INSERT INTO receipt(sha256, kernel, task, body, added_us) VALUES(?,?,?,?,?)"
                " ON CONFLICT(sha256) DO NOTHING",
                receipt,
            )
            db.executemany(
                "INSERT INTO refusal VALUES(?,?,?,?) ON CONFLICT DO NOTHING",
                [(receipt.sha256, *refusal) for refusal in refusals],
            )
            return done.rowcount == 1

    def move(self, entry: EntryRow, status: KernelStatus, reason: str) -> None:
        """Change the status of an entry that is still as it was read. Raises ConflictError."""
        with self._transaction() as db:
            done = db.execute(
                "UPDATE entry SET status=? WHERE kernel=? AND task=? AND status=?",
                (status, entry.kernel, entry.task, entry.status),
            )
            if done.rowcount != 1:
                raise ConflictError(
                    f"{entry.kernel} is no longer {entry.status}: look at `cuda-rl kernel list`"
                )
            db.execute(
                "INSERT INTO history(ts_us, kernel, task, before, after, reason)"
                " VALUES(?,?,?,?,?,?)",
                (now_us(), entry.kernel, entry.task, entry.status, status, reason),
            )

    def remove(self, entry: EntryRow) -> None:
        """Forget an entry with its receipts; its history stays."""
        with self._transaction() as db:
            key = (entry.kernel, entry.task)
            of_receipts = "receipt IN (SELECT sha256 FROM receipt WHERE kernel=? AND task=?)"
            db.execute(f"DELETE FROM refusal WHERE {of_receipts}", key)
            db.execute("DELETE FROM receipt WHERE kernel=? AND task=?", key)
            db.execute("DELETE FROM entry WHERE kernel=? AND task=?", key)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Committed at the end of the block, undone on any exception."""
        with _told(self.path):
            with databases.writing(self._db):
                yield self._db
            # one file again, for those who can only read
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def now_us() -> int:
    """Microseconds of the wall clock."""
    return time.time_ns() // 1000


def _damaged(path: Path) -> str:
    return (
        f"{path} is damaged: move it away, then import a backup (`cuda-rl kernel import`) or add "
        "the kernels again"
    )


def _told(path: Path) -> AbstractContextManager[None]:
    return databases.told(path, _damaged(path))
