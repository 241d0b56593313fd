"""How much one caller may ask for: token buckets, and a count of running requests."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import Field

from coding_framework.types import Config


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


class Meter:
    """What each caller has used. One entry a token, so that its size is bounded by the tokens."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._running: Counter[str] = Counter()

    @contextmanager
    def request(self, caller: str) -> Iterator[None]:
        """While a request runs. Raises OverLimitError."""
        per_s, most = self.limits.requests_per_s, self.limits.concurrent
        if self._running[caller] >= most:
            raise OverLimitError(f"{most} requests of this token run already", 1.0)
        if wait := self._take(caller, "requests", max(1.0, 2.0 * per_s), per_s, 1.0):
            raise OverLimitError(f"over {per_s:g} requests a second", wait)
        self._running[caller] += 1
        try:
            yield
        finally:
            self._running[caller] -= 1

    def candidates(self, caller: str, count: int) -> None:
        """So many kernels shall be judged. Raises OverLimitError."""
        per_min = self.limits.candidates_per_min
        if wait := self._take(caller, "candidates", per_min, per_min / 60.0, float(count)):
            raise OverLimitError(f"over {per_min:g} candidates a minute", wait)

    def _take(self, caller: str, kind: str, capacity: float, per_s: float, amount: float) -> float:
        bucket = self._buckets.setdefault((caller, kind), Bucket(capacity, per_s))
        return bucket.take(amount, self._clock())
