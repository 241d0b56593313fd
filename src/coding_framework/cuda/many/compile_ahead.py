"""Chooses which of the candidates that wait for a judge are compiled meanwhile: the next few.

A judge on a GPU waits for that GPU much of the time, and nvcc takes a third of a verdict's time.
Builds are kept on disk, so any worker of a pool may compile for another one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CompileAhead:
    """The queue of a pool of so many workers. Use from any thread."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: dict[int, str] = {}
        """Sources by number, first come first."""
        self._told: set[int] = set()
        self._judged = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def join(self, code: str) -> int:
        """Wait from now on; the number of the candidate."""
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = code
            return number

    def leave(self, number: int) -> None:
        with self._lock:
            self._waiting.pop(number, None)
            self._told.discard(number)

    @contextmanager
    def judging(self, number: int) -> Iterator[None]:
        """While a worker has the candidate."""
        self.leave(number)
        with self._lock:
            self._judged += 1
        try:
            yield
        finally:
            with self._lock:
                self._judged -= 1

    def coming(self) -> list[str]:
        """Sources to be compiled from now on: none where a worker is free, and each once."""
        with self._lock:
            if self._judged < self._workers:
                return []
            first = itertools.islice(self._waiting, self._workers)
            new = [number for number in first if number not in self._told]
            self._told.update(new)
            return [self._waiting[number] for number in new]
