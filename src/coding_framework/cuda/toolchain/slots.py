"""Slots: how many compilations run at once on this machine, over all processes.

One lock file a slot; the kernel frees a dead holder's lock. Waiting for a slot is queueing and is
never counted as a candidate's time.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def available_cores() -> int:
    """Cores that this process may run on."""
    return max(1, len(os.sched_getaffinity(0)))


def try_lock(path: Path) -> int | None:
    """A handle that holds the lock of a file until it is closed; None where somebody has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


@contextmanager
def slot(folder: Path, count: int) -> Iterator[int]:
    """Hold one of `count` slots; waits as long as it takes. Yields the slot's number."""
    folder.mkdir(parents=True, exist_ok=True)
    pause_s = 0.002
    while True:
        for number in range(count):
            handle = try_lock(folder / f"slot{number}")
            if handle is None:
                continue
            try:
                yield number
            finally:
                os.close(handle)
            return
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)
