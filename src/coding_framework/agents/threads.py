"""How many threads torch computes with, decided by what is faster while the work goes on.

A step of a small model is hundreds of parallel regions of some tens of microseconds, and the
threads of a team wait for each other after each. Beside other processes a thread that has lost its
core holds up the whole team: one thread alone is then faster than two. Nobody knows beforehand what
else the machine will do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from coding_framework.monitoring.load import BusyOthers

_TRIES = 5
"""Repeats with each number of threads, of which the median counts."""
_TRY_S = 2.0
"""After so long a number that is much slower has been tried enough."""
_KEEP_S = 60.0
"""How long a choice is kept before the numbers are tried again."""
_LOOK_S = 5.0
"""From one look at the machine's other work to the next."""
CROWDED = 0.3
"""Share of the processors that others take, from which all cores may be slower than one."""


class ThreadChoice:
    """All cores where the machine is ours; beside others' work the faster of all cores and one.

    What is computed depends on the number of threads in its last bits, so that a machine without
    other work repeats an answer to the bit. It sets torch's threads for the thread that enters
    `timed`, so one choice belongs to one thread. most: the larger number; None: as torch has it
    now. crowded: whether others take much of the machine, of late.
    """

    def __init__(
        self,
        most: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
        crowded: Callable[[], bool] | None = None,
    ) -> None:
        most = most or torch.get_num_threads()
        self._numbers = sorted({most, 1}, reverse=True)
        self._clock = clock
        self._crowded = crowded or _Others().crowded
        self._seen: dict[int, list[float]] = {}
        self._spent: dict[int, float] = {}
        self.chosen: int | None = most
        """None while the numbers are tried."""
        self._tried = False
        self._looked_at = self._chosen_at = self._clock()

    @contextmanager
    def timed(self, work: float = 1.0) -> Iterator[None]:
        """One repeat. work: how much of it there is, in any unit, so that repeats compare."""
        if len(self._numbers) == 1:
            yield
            return
        now = self._clock()
        if now - self._looked_at >= _LOOK_S:
            self._look(now)
        number = self.chosen or self._next()
        torch.set_num_threads(number)
        yield
        if self.chosen is None:
            self._note(number, self._clock() - now, max(work, 1e-9))

    def _look(self, now: float) -> None:
        """Begin to try beside others' work, where no fresh choice stands; end with it."""
        self._looked_at = now
        if not self._crowded():
            self.chosen, self._tried = self._numbers[0], False
        elif not self._tried or (self.chosen is not None and now - self._chosen_at > _KEEP_S):
            self.chosen, self._seen, self._spent, self._tried = None, {}, {}, True

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


class _Others:
    """Whether other processes take much of the machine, since the look before."""

    def __init__(self) -> None:
        self._busy = BusyOthers()

    def crowded(self) -> bool:
        share, self._busy = self._busy.share(), BusyOthers()
        return share > CROWDED
