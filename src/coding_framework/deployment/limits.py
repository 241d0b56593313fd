"""How much one caller may ask for: token buckets and a count of running requests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import Field

from coding_framework.deployment.tokens import Token
from coding_framework.types import Config


class Limits(Config):
    """What a server takes from one caller."""

    body_bytes: int = Field(default=1 << 20, ge=1024)
    """Longest body of a request, in bytes."""
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
    level: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.level, self.at = self.capacity, -math.inf

    def take(self, amount: float, now: float) -> float:
        """0 where `amount` was there and is taken, else the seconds until it will be. What is more
        than the bucket holds is taken from a full one, which is then in debt."""
        self.level = min(self.capacity, self.level + self.per_s * max(0.0, now - self.at))
        self.at = now
        wanted = min(amount, self.capacity)
        if self.level < wanted:
            return (wanted - self.level) / self.per_s
        self.level -= amount
        return 0.0


@dataclass(slots=True)
class _Usage:
    requests: Bucket
    candidates: Bucket
    concurrent: int
    running: int = 0


class Meter:
    """What each caller has used. One entry a token, so that its size is bounded by the tokens."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._usage: dict[str, _Usage] = {}

    @contextmanager
    def request(self, caller: str, token: Token | None) -> Iterator[None]:
        """While a request runs. Raises OverLimitError."""
        usage = self._of(caller, token)
        if usage.running >= usage.concurrent:
            raise OverLimitError(f"{usage.concurrent} requests of this token run already", 1.0)
        wait = usage.requests.take(1.0, self._clock())
        if wait:
            raise OverLimitError(f"over {usage.requests.per_s:g} requests a second", wait)
        usage.running += 1
        try:
            yield
        finally:
            usage.running -= 1

    def candidates(self, caller: str, token: Token | None, count: int) -> None:
        """So many kernels shall be judged. Raises OverLimitError."""
        bucket = self._of(caller, token).candidates
        wait = bucket.take(float(count), self._clock())
        if wait:
            raise OverLimitError(f"over {60 * bucket.per_s:g} candidates a minute", wait)

    def _of(self, caller: str, token: Token | None) -> _Usage:
        found = self._usage.get(caller)
        if found is None:
            own, said = self.limits, token
            per_s = (said.requests_per_s if said else None) or own.requests_per_s
            per_min = (said.candidates_per_min if said else None) or own.candidates_per_min
            found = _Usage(
                requests=Bucket(max(1.0, 2.0 * per_s), per_s),
                candidates=Bucket(per_min, per_min / 60.0),
                concurrent=(said.concurrent if said else None) or own.concurrent,
            )
            self._usage[caller] = found
        return found
