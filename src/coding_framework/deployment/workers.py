"""One server in several processes on one address.

    run_workers(make, 4, listen, tell)     # until SIGTERM or Ctrl-C

uvicorn's supervisor starts each process anew that ends or hangs; the others answer meanwhile. What
the processes share lies in `shared_folder`: limits, jobs, metrics. When the parent is killed, its
workers end.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors.multiprocess import Multiprocess

from coding_framework.deployment.http import (
    SHARED_METRICS,
    Listen,
    address_of,
    bound,
    uvicorn_config,
)
from coding_framework.errors import InfrastructureError
from coding_framework.store.events import log

START_S = 300.0
"""Until the first workers serve: they import much, on a machine that may be busy."""
_AGAIN_S = 5.0
_MEMORY = Path("/dev/shm")
_FOLDER = "cuda-rl-workers-"
_HUNG_S = 60
"""A worker that says nothing for so long is started anew."""


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder of this run in memory, where the system has such a place; environment variables tell
    its processes where their metrics lie."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    for left in filter(_left_behind, place.glob(f"{_FOLDER}*")):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", dir=place) as name:
        metrics = Path(name) / "metrics"
        metrics.mkdir()
        os.environ[SHARED_METRICS] = str(metrics)
        try:
            yield Path(name)
        finally:
            del os.environ[SHARED_METRICS]


def _left_behind(folder: Path) -> bool:
    """Whether a server of this user's made the folder, and was killed. Anybody can make one."""
    process = re.fullmatch(rf"{_FOLDER}(\d{{1,9}})-\w+", folder.name)
    try:
        ours = process is not None and folder.lstat().st_uid == os.getuid()
    except OSError:
        return False
    return ours and process is not None and not psutil.pid_exists(int(process[1]))


def run_workers(
    make: Callable[[], FastAPI],
    count: int,
    listen: Listen,
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, for which it raises KeyboardInterrupt. make: makes a worker's
    application, in its process. started: told the address, when all serve.

    Raises UsageError where the address is taken, InfrastructureError where a worker does not start.
    """
    config = uvicorn_config(_Worker(make), listen, factory=True, workers=count, loop="uvloop")
    config.timeout_worker_healthcheck = _HUNG_S
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with bound(listen, config) as made:
        workers = _Workers(config, [made], lambda: started(address_of(listen, made)))
        try:
            workers.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    if workers.failure is not None:
        raise InfrastructureError(workers.failure)
    if workers.interrupted:
        raise KeyboardInterrupt


class _Worker:
    """Makes the application in a worker's process."""

    def __init__(self, make: Callable[[], FastAPI]) -> None:
        self._make = make

    def __call__(self) -> FastAPI:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        try:
            return self._make()
        except Exception as e:
            log.error("worker_not_started", exc_info=e)
            print(f"a worker does not start: {e}", file=sys.stderr, flush=True)
            time.sleep(_AGAIN_S)  # the parent starts it anew, and the others serve
            sys.exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class _Workers(Multiprocess):
    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], tell: Callable[[], None]
    ) -> None:
        super().__init__(config, sockets)
        self._tell = tell
        self.interrupted = False
        self.failure: str | None = None

    def init_processes(self) -> None:
        super().init_processes()
        ends = time.monotonic() + START_S
        while not all(process.is_ready(timeout=1) for process in self.processes):
            self.handle_signals()
            if self.should_exit.is_set():
                return
            dead = any(process.exitcode is not None for process in self.processes)
            if dead or time.monotonic() > ends:
                self.failure = "a worker did not start: the message above, or the log, says why"
                self.should_exit.set()
                return
            time.sleep(0.05)
        self._tell()

    def keep_subprocess_alive(self) -> None:
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            log.warning("worker_started_anew", ended=pid)
            mark_process_dead(pid)  # type: ignore[no-untyped-call]

    def handle_int(self) -> None:
        self.interrupted = True
        super().handle_int()
