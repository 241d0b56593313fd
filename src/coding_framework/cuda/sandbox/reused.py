"""One sandbox for jobs of one candidate that follow each other: each is a process of its own in it.

To make a sandbox costs several times what a process does. `job_starter` (the C source beside this
file) is the first process in it, and starts each job by fork and exec: with addresses, random bytes
and a number of its own. A job is killed before the next one starts, and no file is writable.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO

import psutil

from coding_framework.cuda.sandbox.base import Exit, Job, Mount, Running, Sandbox, exit_code
from coding_framework.cuda.sandbox.docker import DockerSandbox
from coding_framework.cuda.toolchain.native_parts import build_once
from coding_framework.errors import SandboxError

_SOURCES = ("job_starter.c", "job_starter.h")
_STARTER = "job_starter"
"""Name of the process that starts the others, also of a copier."""
_ANSWER_S = 60.0
_END_S = 5.0


@cache
def _starter() -> Path:
    sources = {name: (Path(__file__).parent / name).read_text() for name in _SOURCES}
    return build_once(_STARTER, sources, ["-O2", "-Wall", _SOURCES[0]], compiler="gcc")


@contextmanager
def reused(sandbox: Sandbox) -> Iterator[Sandbox]:
    """A `Sandbox` for equal jobs without writable mounts, one at a time, which ends with the block.
    Containers are not reused: their engine says of each whether its processes ran out of memory."""
    if isinstance(sandbox, DockerSandbox):
        yield sandbox
        return
    with closing(ReusedSandbox(sandbox)) as one:
        yield one


class ReusedSandbox:
    """`Sandbox` for equal jobs without writable mounts, one at a time."""

    def __init__(self, sandbox: Sandbox) -> None:
        """sandbox: the kind that is reused."""
        self.name = sandbox.name
        self._sandbox = sandbox
        self._job: Job | None = None
        self._running: Running | None = None
        self._control: socket.socket | None = None

    @property
    def system(self) -> str:
        return self._sandbox.system

    def missing(self) -> str | None:
        """See Sandbox.missing."""
        return self._sandbox.missing()

    def path(self, mount: Mount) -> str:
        """See Sandbox.path."""
        return self._sandbox.path(mount)

    def start(self, job: Job, *, stdin: int | IO[bytes], output: int | IO[bytes]) -> ReusedJob:
        """See Sandbox.start. Another job than the last one gets a sandbox of its own."""
        if self._job != job:
            self.close()
            self._open(job, output)
        given = [s if isinstance(s, int) else s.fileno() for s in (stdin, output)]
        if self.ask(b"S", given) != b"+":
            raise SandboxError(f"the {self.name} sandbox could not start a process: try again")
        return ReusedJob(self)

    def _open(self, job: Job, output: int | IO[bytes]) -> None:
        if job.copier:
            started = replace(job, command=job.copier)
        else:
            starter = Mount(_starter().parent, "/opt/starter")
            command = (f"{self.path(starter)}/{_STARTER}", *job.command)
            started = replace(job, command=command, mounts=(*job.mounts, starter))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_ANSWER_S)
        with theirs:
            self._running = self._sandbox.start(started, stdin=theirs.fileno(), output=output)
        self._job = job

    def ask(self, request: bytes, descriptors: list[int] | None = None) -> bytes:
        """The starter's answer. Raises SandboxError where it is gone."""
        assert self._control is not None
        try:
            socket.send_fds(self._control, [request], descriptors or [])
            answer = self._control.recv(64)
        except OSError:
            answer = b""
        if not answer:
            self.close()
            raise SandboxError(f"the {self.name} sandbox does not start processes: try again")
        return answer

    def processes(self) -> list[psutil.Process]:
        """Of the job that runs. Raises psutil.Error while they end."""
        found = [] if self._running is None else self._running.processes()
        return [process for process in found if process.name() != _STARTER]

    def close(self) -> None:
        """End the sandbox with all that runs in it."""
        if self._control is not None:
            with suppress(OSError):  # where nothing else does, this ends what the job started
                self._control.settimeout(_END_S)
                self._control.send(b"E")
                self._control.recv(64)
            self._control.close()
        if self._running is not None:
            self._running.stop()
        self._job = self._running = self._control = None

    @property
    def closed(self) -> bool:
        return self._control is None


class ReusedJob:
    """`Running` for one job of a `ReusedSandbox`."""

    def __init__(self, sandbox: ReusedSandbox) -> None:
        self._sandbox = sandbox
        self._ended = False

    def wait(self, wall_s: float) -> Exit:
        """See Running.wait; wall_s: below a minute."""
        answer = self._sandbox.ask(b"W%d" % (1000 * wall_s))
        timed_out = answer == b"-"
        if timed_out:
            self.stop()
            return Exit(code=-9, cpu_s=0.0, timed_out=True)
        self._ended = True
        status, microseconds = map(int, answer.split())
        return Exit(code=exit_code(status), cpu_s=microseconds / 1e6)

    def stop(self) -> None:
        """See Running.stop."""
        if not self._ended and not self._sandbox.closed:
            self._ended = True
            self._sandbox.ask(b"E")

    def processes(self) -> list[psutil.Process]:
        """See Running.processes."""
        return self._sandbox.processes()
