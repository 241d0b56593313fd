"""A progress line on stderr: what is done, how fast, how long it still takes.

On a terminal one line is redrawn; elsewhere (a log, CI) a line is printed now and then, so that a
log stays short and a watcher still sees that work goes on. The heartbeat of a run tells the same
(`activity`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self, TextIO

TERMINAL_INTERVAL_S = 0.2
LOG_INTERVAL_S = 15.0


@dataclass(frozen=True, slots=True)
class Activity:
    """What is being done."""

    stage: str
    step: int
    of: int | None
    unit: str
    rate: float | None
    """Units a second of this start; None before the first."""
    eta_s: float | None
    note: str
    training: bool
    """Whether weights are learning."""


class _Now:
    """What this process does."""

    lines: ClassVar[list[Progress]] = []
    """The progress lines that are open, the last one innermost."""
    of_child: Activity | None = None
    """What a child said that does this process's work."""
    stage: str = ""


def activity() -> Activity | None:
    """What this process does, or its child in its place; None where no progress line is open."""
    lines = _Now.lines[-1:]
    return lines[0].activity() if lines else _Now.of_child


def adopt_activity(told: Activity | None) -> None:
    """What a child that does this process's work says that it does."""
    _Now.of_child = told


def set_stage(words: str) -> None:
    """What this process is about, also where no progress line is open."""
    _Now.stage = words


def stage() -> str:
    """What `set_stage` was told last."""
    return _Now.stage


class Progress:
    """Counts units of work of one stage. training: whether weights are learning. at_once: how many
    units are worked on at a time.

    `label` may change while it runs. The rate is that of this run alone: units that an earlier run
    finished (`done`) count for the share, not for the rate, and what comes before `begin` is no
    unit's time. It is told how long it still takes once half of the first `at_once` units are done;
    after twice as many their time, which holds the start of judges and caches, is left out.
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        unit: str,
        *,
        done: int = 0,
        at_once: int = 1,
        training: bool = False,
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
        self._at_once = at_once
        self._training = training
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._start = self._began = self._last = clock()
        self._wave: tuple[int, float] | None = None
        """Units of this run, and the clock, when the first `at_once` of them were done."""
        self._shown_at: float | None = None
        self._terminal = self._stream.isatty()
        self._width = 0

    def __enter__(self) -> Self:
        _Now.lines.append(self)
        self._show(force=True)
        return self

    def __exit__(self, *_: object) -> None:
        _Now.lines.remove(self)
        self._show(force=True)
        if self._terminal:
            self._stream.write("\n")
            self._stream.flush()

    def begin(self, ago_s: float = 0.0) -> None:
        """The work began so long ago: models are loaded and judges started, and what is done by now
        an earlier run has done."""
        self._began, self._first, self._wave = self._clock() - ago_s, self.done, None

    def advance(self, count: int = 1, note: str | None = None) -> None:
        """`count` more units are done."""
        self.update(self.done + count, note)

    def update(self, done: int, note: str | None = None) -> None:
        """`done` units are done by now."""
        if done > self.done:
            self._last = self._clock()
        self.done = done
        if self._wave is None and done - self._first >= self._at_once:
            self._wave = (done - self._first, self._last)
        if note is not None:
            self.note = note
        self._show()

    def line(self) -> str:
        """The line as it would be shown now."""
        now = self.activity()
        of = f"/{now.of}" if now.of is not None else ""
        parts = [f"{self.label}: {now.step}{of} {now.unit}"]
        if now.rate is not None:
            parts.append(f"{1 / now.rate:.1f} s each" if now.rate < 1 else f"{now.rate:.1f}/s")
        if now.eta_s is not None:
            parts.append(f"{duration(now.eta_s)} left")
        parts.append(f"{duration(self._elapsed_s)} so far")
        if now.note:
            parts.append(now.note)
        return ", ".join(parts)

    def activity(self) -> Activity:
        """What it counts, as of now."""
        done, total = self.done, self.total
        rate = self._rate()
        return Activity(
            stage=self.label.strip(),
            step=done,
            of=total,
            unit=self.unit,
            rate=rate,
            eta_s=self._left_s(rate),
            note=self.note,
            training=self._training,
        )

    def _rate(self) -> float | None:
        finished, since = self.done - self._first, self._began
        if self._wave is not None and finished >= 2 * self._wave[0]:
            finished, since = finished - self._wave[0], self._wave[1]
        return finished / max(self._last - since, 1e-9) if finished > 0 else None

    def _left_s(self, rate: float | None) -> float | None:
        left = self.total - self.done if self.total is not None else 0
        finished = self.done - self._first
        if rate is None or left <= 0 or finished < min(self._at_once, finished + left) / 2:
            return None
        return max(left / rate - (self._clock() - self._last), 0.5 * left / rate)

    @property
    def _elapsed_s(self) -> float:
        return max(self._clock() - self._start, 1e-9)

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
