"""How much one caller may ask for: token buckets, a count of running requests, tokens a day."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pydantic import Field

from coding_framework.deployment.tokens import OwnLimits, Token
from coding_framework.store import databases
from coding_framework.store.databases import StorageError
from coding_framework.store.events import log
from coding_framework.types import Config

DAY_S = 86400
_KEPT_DAYS = 31


class Limits(Config):
    """What a server takes from one caller."""

    body_bytes: int = Field(default=1 << 20, ge=1024)
    """Longest body of a request, in bytes."""
    bodies_bytes: int = Field(default=256 << 20, ge=1 << 20)
    """Bytes of all bodies that are read at a time, beyond the first MiB of each."""
    body_s: float = Field(default=30.0, gt=0.0)
    """Longest time that a body may take to arrive, in seconds."""
    json_depth: int = Field(default=32, ge=4)
    """Deepest nesting of a request's JSON."""
    messages: int = Field(default=64, ge=1)
    """Most messages of a chat."""
    message_chars: int = Field(default=65536, ge=1)
    """Longest message, in characters."""
    requests_per_s: float = Field(default=20.0, gt=0.0)
    """Requests a second of one token; twice as many may come at once."""
    concurrent: int = Field(default=32, ge=1)
    """Requests of one token that run at a time."""
    candidates_per_min: float = Field(default=600.0, gt=0.0)
    """Kernels that are judged for one token, a minute."""
    tokens_per_day: int | None = Field(default=None, ge=1)
    """Tokens of the models, read and written, for one token of ours and day (UTC). None: any."""


class OverLimitError(Exception):
    """A caller asks for more than it may have."""

    def __init__(self, what: str, retry_after_s: float) -> None:
        super().__init__(what)
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class Bucket:
    """A token bucket."""

    capacity: float
    per_s: float
    level: float = field(default=math.inf)
    """More than it can hold is a full one."""
    at: float = field(default=-math.inf)

    def take(self, amount: float, now: float) -> float:
        """0 where `amount` was there and is taken, else the seconds until it will be. What is more
        than the bucket holds is taken from a full one, which is then in debt."""
        if self.level < self.capacity:
            self.level += self.per_s * max(0.0, now - self.at)
        self.level, self.at = min(self.capacity, self.level), now
        wanted = min(amount, self.capacity)
        if self.level < wanted:
            return (wanted - self.level) / self.per_s
        self.level -= amount
        return 0.0


_USED = """
CREATE TABLE bucket(caller TEXT, kind TEXT, level REAL, at REAL, PRIMARY KEY(caller, kind))
  WITHOUT ROWID;
CREATE TABLE running(caller TEXT, process INTEGER, requests INTEGER, PRIMARY KEY(caller, process))
  WITHOUT ROWID;
"""


class Meter:
    """What each caller has used, in all processes of a server. One entry a token, so that its size
    is bounded by the tokens."""

    def __init__(
        self,
        limits: Limits,
        path: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """path: a file of this run of the server, which its processes share; None: it is the only
        one. Raises StorageError."""
        self.limits = limits
        self._clock = clock
        self._path = path or Path(":memory:")
        with self._told():
            self._db = databases.open_database(path, durable=False) if path else _in_memory()
            databases.migrate(self._db, [_USED])
            self._forget_the_dead()

    @contextmanager
    def request(self, caller: str, token: Token | None) -> Iterator[None]:
        """While a request runs. Raises OverLimitError."""
        per_s = _own(token, "requests_per_s") or self.limits.requests_per_s
        most = _own(token, "concurrent") or self.limits.concurrent
        with self._changing():
            (running,) = self._db.execute(
                "SELECT total(requests) FROM running WHERE caller=?", (caller,)
            ).fetchone()
            if running >= most:
                raise OverLimitError(f"{most} requests of this token run already", 1.0)
            bucket = Bucket(max(1.0, 2.0 * per_s), per_s)
            if wait := self._take(caller, "requests", bucket, 1.0):
                raise OverLimitError(f"over {per_s:g} requests a second", wait)
            self._runs(caller, 1)
        try:
            yield
        finally:
            with self._changing():
                self._runs(caller, -1)

    def candidates(self, caller: str, token: Token | None, count: int) -> None:
        """So many kernels shall be judged. Raises OverLimitError."""
        per_min = _own(token, "candidates_per_min") or self.limits.candidates_per_min
        with self._changing():
            wait = self._take(caller, "candidates", Bucket(per_min, per_min / 60.0), float(count))
        if wait:
            raise OverLimitError(f"over {per_min:g} candidates a minute", wait)

    def _take(self, caller: str, kind: str, bucket: Bucket, amount: float) -> float:
        known = self._db.execute(
            "SELECT level, at FROM bucket WHERE caller=? AND kind=?", (caller, kind)
        ).fetchone()
        if known is not None:
            bucket.level, bucket.at = known
        wait = bucket.take(amount, self._clock())
        self._db.execute(
            "INSERT OR REPLACE INTO bucket VALUES(?,?,?,?)", (caller, kind, bucket.level, bucket.at)
        )
        return wait

    def _runs(self, caller: str, more: int) -> None:
        self._db.execute(
            "INSERT INTO running VALUES(?1,?2,?3)"
            " ON CONFLICT(caller, process) DO UPDATE SET requests = requests + ?3",
            (caller, os.getpid(), more),
        )

    def _forget_the_dead(self) -> None:
        """Requests of processes that were killed run no more."""
        for (process,) in self._db.execute("SELECT DISTINCT process FROM running").fetchall():
            if process == os.getpid() or not psutil.pid_exists(process):
                self._db.execute("DELETE FROM running WHERE process=?", (process,))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._told(), databases.writing(self._db):
            yield

    def _told(self) -> AbstractContextManager[None]:
        return databases.told(self._path, f"{self._path} is damaged: start the server again")


_SPENT = """
CREATE TABLE spent(caller TEXT, day INTEGER, tokens INTEGER NOT NULL, PRIMARY KEY(caller, day))
  WITHOUT ROWID;
"""


class Quota:
    """How many tokens of the models each caller has had today (UTC), over restarts.

    Counted in memory and written by `keep`, which a server calls every second: a kill loses what
    came since, and several processes may together give a second's more than the quota.
    """

    def __init__(self, limits: Limits, path: Path, clock: Callable[[], float] = time.time) -> None:
        """path: the file, which all processes of a server share. Raises StorageError."""
        self.limits, self._path, self._clock = limits, path, clock
        self._lock = threading.Lock()
        self._new: Counter[tuple[str, int]] = Counter()
        self._kept: dict[tuple[str, int], int] = {}
        with self._told():
            self._db = databases.open_database(path, durable=False)
            databases.migrate(self._db, [_SPENT])
        self.keep()

    def require(self, caller: str, token: Token | None) -> None:
        """Raises OverLimitError where today's tokens are used up."""
        most = _own(token, "tokens_per_day") or self.limits.tokens_per_day
        if most is not None and self.spent(caller) >= most:
            left = DAY_S - self._clock() % DAY_S
            raise OverLimitError(f"{most} tokens of today (UTC) are used up", left)

    def spent(self, caller: str) -> int:
        """Tokens of today."""
        key = (caller, self._today())
        with self._lock:
            return self._kept.get(key, 0) + self._new[key]

    def add(self, caller: str, tokens: int) -> None:
        with self._lock:
            self._new[caller, self._today()] += tokens

    def keep(self) -> None:
        """Write what is new, and read what other processes wrote. It may block. Where the file
        cannot be written, that is told in the log and it is tried again the next time."""
        with self._lock:
            new = {key: tokens for key, tokens in self._new.items() if tokens}
        try:
            with self._told():
                if new:
                    self._write(new)
                rows = self._db.execute(
                    "SELECT caller, day, tokens FROM spent WHERE day=?", (self._today(),)
                ).fetchall()
        except StorageError as e:
            log.warning("tokens_not_counted_on_disk", why=str(e))
            return
        with self._lock:
            self._new.subtract(new)
            self._new = +self._new
            self._kept = {(caller, day): tokens for caller, day, tokens in rows}

    def close(self) -> None:
        """Write what is new, and end."""
        self.keep()
        self._db.close()

    def _write(self, new: Mapping[tuple[str, int], int]) -> None:
        with databases.writing(self._db):
            self._db.executemany(
                "INSERT INTO spent VALUES(?1,?2,?3)"
                " ON CONFLICT(caller, day) DO UPDATE SET tokens = tokens + ?3",
                [(*key, tokens) for key, tokens in new.items()],
            )
            self._db.execute("DELETE FROM spent WHERE day < ?", (self._today() - _KEPT_DAYS,))

    def _today(self) -> int:
        return int(self._clock() // DAY_S)

    def _told(self) -> AbstractContextManager[None]:
        return databases.told(
            self._path, f"{self._path} is no file of used tokens: move it away, and start again"
        )


def _own(token: Token | None, name: OwnLimits) -> Any:
    """A limit of the token's own; None: as the server says."""
    return None if token is None else getattr(token, name)


def _in_memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
