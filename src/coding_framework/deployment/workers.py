"""One server in several processes on one address.

    run_workers(make, 4, listen, tokens, tell)     # until SIGTERM or Ctrl-C

uvicorn's supervisor starts each process anew that ends or hangs; the others answer meanwhile. What
the processes share lies in `shared_folder`: limits, jobs, metrics. When the parent is killed, its
workers end.
"""

from __future__ import annotations

import multiprocessing
import os
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
    require_safe,
    taken,
    uvicorn_config,
)
from coding_framework.deployment.tokens import TokenFile
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.store.events import log

START_S = 300.0
"""Until the first workers serve: they import much, on a machine that may be busy."""
_AGAIN_S = 5.0
_FOLDER = "cuda-rl-workers-"
_HUNG_S = 60
"""A worker that says nothing for so long is started anew."""


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder of this run in memory, where the system has such a place; environment variables tell
    its processes where their metrics lie."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for left in place.glob(f"{_FOLDER}*"):  # by a server that was killed
        if not psutil.pid_exists(int(left.name.split("-")[3])):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", dir=place) as name:
        metrics = Path(name) / "metrics"
        metrics.mkdir()
        os.environ[SHARED_METRICS] = str(metrics)
        try:
            yield Path(name)
        finally:
            del os.environ[SHARED_METRICS]


def run_workers(
    make: Callable[[], FastAPI],
    count: int,
    listen: Listen,
    tokens: TokenFile | None,
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, for which it raises KeyboardInterrupt. make: makes a worker's
    application, in its process. started: told the address, when all serve.

    Raises UsageError where the address is taken, or others could reach it without a token,
    InfrastructureError where a worker does not start.
    """
    require_safe(listen, tokens)
    config = uvicorn_config(_Worker(make), listen, factory=True, workers=count, loop="uvloop")
    config.timeout_worker_healthcheck = _HUNG_S
    try:
        bound = config.bind_socket()
    except SystemExit as e:
        raise UsageError(taken(listen)) from e
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with bound:
        workers = _Workers(config, [bound], lambda: started(address_of(listen, bound)))
        try:
            workers.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if listen.uds is not None:
                listen.uds.unlink(missing_ok=True)
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
