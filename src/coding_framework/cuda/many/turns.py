"""Turns of small and large work on a GPU: those of one kind run beside each other, those of both
kinds never.

A judge that waits keeps a context of its own, 1.5 GiB. Beside several of them work that fills a
GPU found no memory, and with so few judges that it always did, one judged all of KernelBench on an
H100: 12 minutes for 120 of its problems.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """Large work begins when no small work is expected any more. Of both kinds what has waited long
    goes before what came later, so that neither waits for ever. Safe for many threads."""

    def __init__(self, changes: Callable[[], object], patience_s: float = 120.0) -> None:
        """changes: called when work of the other kind is about to begin and nothing runs."""
        self._changes = changes
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._expected: Counter[bool] = Counter()
        self._running: Counter[bool] = Counter()
        self._last_was_large = False
        self._waiting: dict[bool, list[float]] = {False: [], True: []}
        """When each work that waits will have waited long."""

    def expect(self, *, large: bool) -> Callable[[object], None]:
        """Work will come; what is given back is to be called when it is done, or will not come."""
        with self._changed:
            self._expected[large] += 1

        def done(_: object = None) -> None:
            with self._changed:
                self._expected[large] -= 1
                self._changed.notify_all()

        return done

    @contextmanager
    def turn(self, *, large: bool) -> Iterator[None]:
        """While work of this kind may run."""
        with self._changed:
            self._wait(large=large)
            if large != self._last_was_large:
                self._last_was_large = large
                self._changes()
            self._running[large] += 1
        try:
            yield
        finally:
            with self._changed:
                self._running[large] -= 1
                self._changed.notify_all()

    def _wait(self, *, large: bool) -> None:
        long = time.monotonic() + self._patience_s
        self._waiting[large].append(long)
        try:
            while not self._may_begin(long, large=large):
                self._changed.wait(1.0)
        finally:
            self._waiting[large].remove(long)

    def _may_begin(self, long: float, *, large: bool) -> bool:
        if self._running[not large]:
            return False
        now = time.monotonic()
        other = min(self._waiting[not large], default=math.inf)
        if other <= now and other < long:
            return False
        return not large or bool(self._running[True]) or not self._expected[False] or now >= long
