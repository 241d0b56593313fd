"""Waiting for what another thread or process does, on machines that may be slow and busy.

A test waits for the thing itself, and never for a time in which it should have happened: the
patience below only ends a test that would hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from support.time_bar import machine_factor

PATIENCE_S = 180.0
_LOOK_S = 0.01


def until(true: Callable[[], Any], what: str = "what the test waits for") -> None:
    """Return once `true()` is."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"{what} did not come about in {PATIENCE_S:.0f} s"
        time.sleep(_LOOK_S)


def ended(pid: int) -> bool:
    """Whether a process is over, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def left_of(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended after our patience; zombies have."""
    end = time.monotonic() + PATIENCE_S
    left = list(processes)
    while (left := [p for p in left if not ended(p.pid)]) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    return left


def holders(file: Path) -> int:
    """How many open files hold a lock of flock on this one."""
    inode = f":{file.stat().st_ino} " if file.exists() else "none"
    locks = Path("/proc/locks").read_text().splitlines()
    return sum(inode in line and "FLOCK" in line and "->" not in line for line in locks)


@contextmanager
def at_most_cpu_s(seconds: float) -> Iterator[None]:
    """The block takes so much of this process's CPU time on the machine of the bars. How much
    slower this one is at the moment is measured where the block took longer."""
    began = time.process_time()
    yield
    took = time.process_time() - began
    assert took < seconds or took < seconds * machine_factor(), f"it took {took:.1f} s of CPU time"
