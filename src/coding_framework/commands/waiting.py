"""A line on stderr while one piece of work takes long: what is done now, and since when."""

from __future__ import annotations

import sys
import threading
import time
from typing import Self, TextIO

from coding_framework.monitoring.progress import LOG_INTERVAL_S, duration

QUIET_S = 2.0
"""Shorter work says nothing."""
_REDRAW_S = 0.5


class Waiting:
    """Tells on stderr what a command does, from the moment that it has taken `quiet_s`.

    On a terminal one line is redrawn and removed at the end; elsewhere a line is printed now and
    then. Safe to be told from another thread.
    """

    def __init__(
        self, what: str, *, stream: TextIO | None = None, quiet_s: float = QUIET_S
    ) -> None:
        self._what = what
        self._step = ""
        self._stream = stream if stream is not None else sys.stderr
        self._quiet_s = quiet_s
        self._terminal = self._stream.isatty()
        self._width = 0
        self._start = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._width:
            self._write(f"\r{' ' * self._width}\r")

    def tell(self, step: str) -> None:
        """`step` is what happens now."""
        self._step = step

    def line(self) -> str:
        """The line as it would be shown now."""
        step = f": {self._step}" if self._step else ""
        return f"{self._what}{step} ({duration(time.monotonic() - self._start)})"

    def _watch(self) -> None:
        pause_s = self._quiet_s
        while not self._over.wait(pause_s):
            pause_s = _REDRAW_S if self._terminal else LOG_INTERVAL_S
            self._show()

    def _show(self) -> None:
        text = self.line()
        if self._terminal:
            self._write(f"\r{text.ljust(self._width)}")
            self._width = len(text)
        else:
            self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
