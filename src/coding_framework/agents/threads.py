"""How many threads torch computes with: as many as other processes leave cores.

A step of a small model is hundreds of parallel regions of some tens of microseconds, and the
threads of a team wait for each other after each. Beside other processes a thread that has lost its
core holds up the whole team: one thread alone is then several times as fast as two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from coding_framework.monitoring.load import BusyOthers

LOOK_S = 5.0
"""From one look at the machine's other work to the next."""
CROWDED = 0.3
"""Share of the processors that others take, up to which all cores are ours."""


def threads_beside(others: float, most: int) -> int:
    """Threads, of `most`, where other processes take that share of the processors."""
    return most if others <= CROWDED else max(1, math.floor(most * (1 - others)))


class ThreadChoice:
    """All cores where the machine is ours, else those that others' work leaves.

    What is computed depends on the number of threads in its last bits, so that a machine without
    other work repeats an answer to the bit. most: the larger number; None: as torch has it now.
    others: gives the share of the processors that others took of late.
    """

    def __init__(
        self,
        most: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        others: Callable[[], float] | None = None,
    ) -> None:
        self._most = most or torch.get_num_threads()
        self._clock = clock
        self._busy = BusyOthers() if others is None else None
        self._others = others or self._since_the_look_before
        self._chosen = self._most
        self._looked_at = clock()

    def set(self) -> None:
        """Set torch's threads of this thread, for the work that follows."""
        if self._most == 1:
            return
        now = self._clock()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._chosen = threads_beside(self._others(), self._most)
        torch.set_num_threads(self._chosen)

    def _since_the_look_before(self) -> float:
        assert self._busy is not None
        share, self._busy = self._busy.share(), BusyOthers()
        return share
