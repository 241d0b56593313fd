"""SQLite files of ours: one file in WAL mode for the processes of one host, numbered migrations,
and every failure as a StorageError that says what to do."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from coding_framework.errors import InfrastructureError

BUSY_MS = 5000
"""How long a process waits for another one's lock."""
_ASK_EVERY_S = 0.0005


class StorageError(InfrastructureError):
    """A database cannot be read or written."""


def open_database(path: Path, *, durable: bool = True) -> sqlite3.Connection:
    """For one thread at a time; made where it is missing. durable: it survives a power cut (False:
    only a kill)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = _connected(str(path))
    for _ in range(BUSY_MS // 50):
        # SQLite does not wait for its lock here, where several processes make the file at once
        with contextlib.suppress(sqlite3.OperationalError):
            if db.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                break
        time.sleep(0.05)
    else:
        db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
    db.execute("PRAGMA foreign_keys=ON")
    return db


def open_to_read(path: Path, *, briefly: bool = False) -> sqlite3.Connection:
    """Also where neither the file nor its folder can be written: then nobody's changes are waited
    for. briefly: for so short a look that nobody changes the database meanwhile; where no process
    has it open, no file is left beside it."""
    address = path.resolve().as_uri()
    rests = briefly and not path.with_name(f"{path.name}-wal").exists()
    if not rests:
        db = _connected(f"{address}?mode=ro")
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            db.close()
        else:
            return db
    db = _connected(f"{address}?mode=ro&immutable=1")
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


def _connected(address: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        address, uri=address.startswith("file:"), isolation_level=None, check_same_thread=False
    )
    db.execute(f"PRAGMA busy_timeout={BUSY_MS}")
    return db


def version_of(db: sqlite3.Connection) -> int:
    """How many migrations it has had."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Number 0 makes a new database, as it is now; number N brings one from version N to N + 1: all
    that are missing, or none."""
    if version_of(db) >= len(migrations):
        return
    with writing(db):
        version = version_of(db)
        for script in migrations[version:] if version else migrations[:1]:
            for statement in _statements(script):
                db.execute(statement)
        db.execute(f"PRAGMA user_version={max(version_of(db), len(migrations))}")


@contextlib.contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: committed at the end of the block, undone on any exception."""
    _begin(db)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _begin(db: sqlite3.Connection) -> None:
    """Take the lock. SQLite's own waiting pauses ever longer, up to 100 ms, so that who came first
    is often last where several processes write."""
    ends = time.monotonic() + BUSY_MS / 1000
    db.execute("PRAGMA busy_timeout=0")
    try:
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as e:
                if e.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > ends:
                    raise
            time.sleep(_ASK_EVERY_S)
    finally:
        db.execute(f"PRAGMA busy_timeout={BUSY_MS}")


def require_version(db: sqlite3.Connection, path: Path, newest: int, *, update: str) -> None:
    """Raises StorageError where it is not the newest. update: what brings an older one up."""
    version = version_of(db)
    if version > newest:
        raise StorageError(
            f"{path} was written by a newer version of this program: install that one"
        )
    if version < newest:
        raise StorageError(f"{path} was written by an older version of this program: {update}")


def require_whole(db: sqlite3.Connection, damaged: str) -> None:
    """Raises StorageError with the sentence `damaged` where a page is damaged."""
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StorageError(damaged)


@contextlib.contextmanager
def told(path: Path, damaged: str) -> Iterator[None]:
    """A failure of SQLite's or of the disk as a StorageError. damaged: the sentence for a file that
    is no database of this kind."""
    try:
        yield
    except sqlite3.OperationalError as e:
        raise StorageError(_sentence(path, str(e), damaged)) from e
    except sqlite3.IntegrityError as e:
        raise StorageError(f"{path} refused what was written ({e}): report it") from e
    except sqlite3.DatabaseError as e:
        raise StorageError(damaged) from e
    except OSError as e:
        raise StorageError(
            f"{path} cannot be opened ({e.strerror or e}): choose a place that can be written"
        ) from e


def _sentence(path: Path, said: str, damaged: str) -> str:
    if "locked" in said:
        return f"another process has held {path} locked for {BUSY_MS // 1000} s: end that process"
    if "full" in said:
        return f"the disk of {path} is full: free some space"
    if path.is_dir():
        return f"{path} is a folder: name a file in it"
    if "readonly" in said or "unable to open" in said:
        return f"{path} cannot be written: give this user the right to write it and its folder"
    if any(part in said for part in ("no such table", "no such column", "malformed")):
        return damaged
    return f"{path} failed ({said}): look at its disk, then try again"


def _statements(script: str) -> Iterator[str]:
    """The statements of a script: a trigger holds semicolons of its own."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
