"""How many threads torch computes with, decided by what is faster while the work goes on.

A step of a small model is hundreds of parallel regions of some tens of microseconds, and the
threads of a team wait for each other after each. Beside other processes a thread that has lost its
core holds up the whole team: one thread alone is then faster than two (`benchmarks/results/
waiting_threads.json`). Nobody knows beforehand what else the machine will do.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

_TRIES = 5
"""Repeats with each number of threads, of which the median counts."""
_TRY_S = 2.0
"""After so long a number that is much slower has been tried enough."""
_KEEP_S = 60.0
"""How long a choice is kept before the numbers are tried again: a try of the slower one costs a
repeat or two at half the speed."""
_SLOWER = 1.5
"""All cores are kept longer, until the last repeats take so many times what they took."""
_REPEATS = 3


class ThreadChoice:
    """The faster of all cores and one, for work that repeats; tried again every minute, all cores
    only once they have become slower.

    It sets torch's threads for the thread that enters `timed`, so one choice belongs to one thread.
    most: the larger number; None: as torch has it now.
    """

    def __init__(
        self, most: int | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        most = most or torch.get_num_threads()
        self._numbers = sorted({most, 1}, reverse=True)
        self._clock = clock
        self._seen: dict[int, list[float]] = {}
        self._spent: dict[int, float] = {}
        self.chosen: int | None = self._numbers[0] if len(self._numbers) == 1 else None
        """None while the numbers are tried."""
        self._chosen_at = 0.0
        self._latest: deque[float] = deque(maxlen=_REPEATS)

    @contextmanager
    def timed(self, work: float = 1.0) -> Iterator[None]:
        """One repeat. work: how much of it there is, in any unit, so that repeats compare."""
        if len(self._numbers) == 1:
            yield
            return
        now = self._clock()
        if self.chosen is not None and now - self._chosen_at > _KEEP_S and self._doubtful():
            self.chosen, self._seen, self._spent = None, {}, {}
            self._latest.clear()
        number = self.chosen or self._next()
        torch.set_num_threads(number)
        yield
        took = self._clock() - now
        if self.chosen is None:
            self._note(number, took, max(work, 1e-9))
        else:
            self._latest.append(took / max(work, 1e-9))

    def _doubtful(self) -> bool:
        """Whether another number may be faster by now. Where one thread was, nothing that it takes
        says that the other cores have become free."""
        if self.chosen != self._numbers[0]:
            return True
        as_chosen = statistics.median(self._seen[self.chosen])
        return len(self._latest) == _REPEATS and min(self._latest) > _SLOWER * as_chosen

    def _next(self) -> int:
        return next(n for n in self._numbers if not self._enough(n))

    def _enough(self, number: int) -> bool:
        tried = len(self._seen.get(number, []))
        return tried >= _TRIES or (tried >= 2 and self._spent[number] > _TRY_S)

    def _note(self, number: int, seconds: float, work: float) -> None:
        self._seen.setdefault(number, []).append(seconds / work)
        self._spent[number] = self._spent.get(number, 0.0) + seconds
        if all(map(self._enough, self._numbers)):
            self.chosen = min(self._numbers, key=lambda n: statistics.median(self._seen[n]))
            self._chosen_at = self._clock()
