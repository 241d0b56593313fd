"""A progress line on stderr: what is done, how fast, how long it still takes.

On a terminal one line is redrawn; elsewhere (a log, CI) a line is printed now and then, so that a
log stays short and a watcher still sees that work goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

TERMINAL_INTERVAL_S = 0.2
LOG_INTERVAL_S = 15.0


class Progress:
    """Counts units of work of one stage.

    `label` may change while it runs. The rate is that of this run alone: units that an earlier run
    finished (`done`) count for the share, not for the rate.
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        unit: str,
        *,
        done: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self.done = done
        self.note = ""
        """Shown at the end of the line, e.g. the last loss."""
        self._first = done
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._start = clock()
        self._shown_at: float | None = None
        self._terminal = self._stream.isatty()
        self._width = 0

    def __enter__(self) -> Self:
        self._show(force=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._show(force=True)
        if self._terminal:
            self._stream.write("\n")
            self._stream.flush()

    def advance(self, count: int = 1, note: str | None = None) -> None:
        """`count` more units are done."""
        self.update(self.done + count, note)

    def update(self, done: int, note: str | None = None) -> None:
        """`done` units are done by now."""
        self.done = done
        if note is not None:
            self.note = note
        self._show()

    def line(self) -> str:
        """The line as it would be shown now."""
        elapsed = max(self._clock() - self._start, 1e-9)
        rate = (self.done - self._first) / elapsed
        of = f"/{self.total}" if self.total is not None else ""
        parts = [f"{self.label}: {self.done}{of} {self.unit}"]
        if rate > 0:
            slow = rate < 1
            parts.append(f"{1 / rate:.1f} s each" if slow else f"{rate:.1f}/s")
            if self.total is not None and self.done < self.total:
                parts.append(f"{duration((self.total - self.done) / rate)} left")
        parts.append(f"{duration(elapsed)} so far")
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)

    def _show(self, *, force: bool = False) -> None:
        now = self._clock()
        interval = TERMINAL_INTERVAL_S if self._terminal else LOG_INTERVAL_S
        if not force and self._shown_at is not None and now - self._shown_at < interval:
            return
        self._shown_at = now
        text = self.line()
        if self._terminal:
            padded = text.ljust(self._width)
            self._width = len(text)
            self._stream.write(f"\r{padded}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """Seconds for people: "42 s", "3:05 min", "1:02:03 h"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h"
