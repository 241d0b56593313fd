"""Turns at a few places, by caller and round robin: who asks for much waits behind nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AHEAD = 2
"""Kernels of each of a judge's workers that it holds at a time: it compiles the next one
meanwhile."""


class FairQueue:
    """Use it in one event loop. Within a caller's line the order is that of coming; whose turn is
    next goes round the callers who wait."""

    def __init__(self, places: int, most_of_one: int | None = None) -> None:
        """most_of_one: places that one caller has at a time; None: all of them, while nobody else
        waits."""
        self.places, self._most = places, most_of_one or places
        self._running: Counter[str] = Counter()
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Of the callers who wait; the next one is first."""

    @property
    def taken(self) -> int:
        """Places."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._lines.values()))

    def waiting_of(self, caller: str) -> int:
        return len(self._lines.get(caller, ()))

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Wait for a place, and have it while the block runs."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(caller, deque()).append(mine)
        self._give()
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # its turn had come
                self._leave(caller)
            self._lines = {c: line for c, line in self._lines.items() if _alive(line)}
            raise
        try:
            yield
        finally:
            self._leave(caller)

    def _leave(self, caller: str) -> None:
        self._running[caller] -= 1
        self._running = +self._running
        self._give()

    def _give(self) -> None:
        """Free places go to the callers in turn."""
        while self.taken < self.places:
            free = (c for c in self._lines if self._running[c] < self._most)
            caller = next(free, None)
            if caller is None:
                return
            line = self._lines.pop(caller)
            if _alive(line):
                line.popleft().set_result(None)
                self._running[caller] += 1
            if line:
                self._lines[caller] = line


def _alive(line: deque[asyncio.Future[None]]) -> bool:
    """Whether somebody waits there; who was cancelled leaves."""
    for mine in [m for m in line if m.cancelled()]:
        line.remove(mine)
    return bool(line)
