"""Peak resident memory of this process and all its descendants, sampled in the background.

Shared pages (PyTorch's libraries in a dozen workers) are counted once: the figure is the sum of the
proportional set sizes, where the kernel tells them, else of the resident ones. A peak shorter than
the sampling interval may be missed. Looking takes the kernel 0.3 s for the 60 processes of RL, so
that the interval grows with what a look costs: one core loses at most 2%.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Self

import psutil

INTERVAL_S = 2.0
COST_SHARE = 0.02
"""Most of one core's time that is spent on looking."""
GIB = 1024**3


class PeakMemory:
    """Context manager; `peak_bytes` is the largest sum seen so far."""

    def __init__(self, pid: int | None = None, interval_s: float = INTERVAL_S) -> None:
        self._root = psutil.Process(pid if pid is not None else os.getpid())
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=10 * self._interval_s)
        self._sample()

    @property
    def peak_gib(self) -> float:
        return self.peak_bytes / GIB

    def reset(self) -> None:
        """Start a new peak from what is resident now."""
        self.peak_bytes = 0
        self._sample()

    def _watch(self) -> None:
        while not self._stop.is_set():
            before = time.thread_time()
            self._sample()
            cost_s = time.thread_time() - before
            self._stop.wait(max(self._interval_s, cost_s / COST_SHARE))

    def _sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, resident_bytes(self._root))


def resident_bytes(root: psutil.Process) -> int:
    """Memory of `root` and its descendants now, shared pages counted once where possible."""
    try:
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(_resident(process) for process in processes)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.AccessDenied, AttributeError, OSError):
        try:
            return int(process.memory_info().rss)
        except psutil.Error:
            return 0
    except psutil.Error:
        return 0
