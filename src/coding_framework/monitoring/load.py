"""What other processes take of this machine."""

from __future__ import annotations

import time

import psutil


class BusyOthers:
    """The processors' time that went to other processes than this one and those it has started and
    waited for."""

    def __init__(self) -> None:
        self._since, self._busy, self._own = time.monotonic(), _busy_s(), _own_s()

    def share(self) -> float:
        """Of all processors, since this was made; 0 to 1."""
        wall = max(time.monotonic() - self._since, 1e-3) * (psutil.cpu_count() or 1)
        others = (_busy_s() - self._busy) - (_own_s() - self._own)
        return min(max(others / wall, 0.0), 1.0)

    def over(self, seconds: float) -> float:
        """Likewise over the next seconds, in which this thread sleeps."""
        self._since, self._busy, self._own = time.monotonic(), _busy_s(), _own_s()
        time.sleep(seconds)
        return self.share()


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + getattr(times, "steal", 0.0))


def _own_s() -> float:
    mine = psutil.Process()
    return _sum(mine) + sum(map(_sum, mine.children(recursive=True)))


def _sum(process: psutil.Process) -> float:
    try:
        spent = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(spent.user + spent.system + spent.children_user + spent.children_system)
