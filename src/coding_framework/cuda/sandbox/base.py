"""What a sandbox is: where untrusted work (a compilation, a candidate's host code) is started.

The judge never trusts what a sandboxed process says. A sandbox keeps that process away from the
machine: files, network, other processes, time and memory.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one sandboxed job. CPU time is each process's own; wall time is a backstop only."""

    cpu_s: int = 30
    wall_s: float = 600.0
    """Far above cpu_s: a machine under load must not turn into a candidate's time-out."""
    memory_bytes: int = 8 * GIB
    """Address space of each process."""
    file_bytes: int = 256 << 20
    """Largest file that may be written, the log included."""
    open_files: int = 256


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path that the job may see, and where it sees it (where the sandbox can move paths)."""

    host: Path
    inside: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One command to run away from everything else."""

    command: Sequence[str]
    """With paths as `Sandbox.path` gives them."""
    mounts: Sequence[Mount]
    limits: Limits
    folder: Mount
    """Where it starts."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Exit:
    """How a job ended."""

    code: int
    """Exit status; negative: the signal."""
    cpu_s: float
    """CPU time of all its processes that were waited for."""
    timed_out: bool = False
    """The wall backstop was reached: our fault, not the candidate's."""


class Sandbox(Protocol):
    """One way to isolate a job."""

    name: str

    def missing(self) -> str | None:
        """None where it works on this machine, else a sentence: why not, and what to install."""
        ...

    def path(self, mount: Mount) -> str:
        """Where a job sees the mount."""
        ...

    def start(
        self, job: Job, *, stdin: int | IO[bytes], output: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start the job; stdout and stderr go to `output`. Raises SandboxError."""
        ...


LIMITER = "prlimit"


def limited(limits: Limits, command: Sequence[str]) -> list[str]:
    """`command` under rlimits, which every descendant inherits and none can raise."""
    cpu_s = _at_most(resource.RLIMIT_CPU, limits.cpu_s)
    return [
        LIMITER,
        f"--cpu={cpu_s}:{_at_most(resource.RLIMIT_CPU, cpu_s + 1)}",
        f"--as={_at_most(resource.RLIMIT_AS, limits.memory_bytes)}",
        f"--fsize={_at_most(resource.RLIMIT_FSIZE, limits.file_bytes)}",
        f"--nofile={_at_most(resource.RLIMIT_NOFILE, limits.open_files)}",
        "--core=0",
        "--",
        *command,
    ]


def _at_most(kind: int, wanted: int) -> int:
    """`wanted`, or the hard limit that we live under ourselves: nobody may raise that."""
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill the job with all its descendants, and reap it."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
        process.wait()


def wait(process: subprocess.Popen[bytes], wall_s: float) -> Exit:
    """Wait for the end; at `wall_s` everything is killed. Gives the CPU time of the whole tree."""
    timed_out = not _ended_within(process.pid, wall_s)
    if timed_out:
        os.killpg(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    if code > 128:  # what bubblewrap and shells make of a signal
        code = 128 - code
    return Exit(code=code, cpu_s=usage.ru_utime + usage.ru_stime, timed_out=timed_out)


def _ended_within(pid: int, wall_s: float) -> bool:
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(wall_s * 1000))
    finally:
        os.close(handle)
