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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import psutil

GIB = 1 << 30
SYSTEM_FOLDERS = ("/bin", "/lib", "/lib32", "/lib64", "/sbin")
"""Beside /usr, where compilers and their libraries lie; links into it on most systems."""
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")
RANDOM_DEVICES = ("/dev/urandom", "/dev/random")
"""Host code that lets them decide is found out where it gets some."""
LOCAL_FOLDERS = ("/usr/local", "/usr/src", "/usr/share")
"""Below /usr, and hidden: local software may lie here, none of it the compiler's business."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one sandboxed job. CPU time is each process's own; wall time is a backstop only."""

    cpu_s: int = 30
    wall_s: float = 600.0
    """Far above cpu_s: a machine under load must not turn into a candidate's time-out."""
    memory_bytes: int = 8 * GIB
    """Address space of each process; in Docker also the memory of all of them together."""
    processes: int = 256
    """At once, threads included. Counted by Docker alone: elsewhere the kernel counts what a user
    runs on the whole machine, or for root nothing. Host code can start none in any sandbox."""
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
    random_devices: bool = False
    """Whether it may read `RANDOM_DEVICES`: not a compiler, which would read them to their end."""
    copier: Sequence[str] = ()
    """A command that starts the job over and over, as job_starter.h says, in less time than it
    takes to start each anew. For who reuses a sandbox; (): there is none."""


@dataclass(slots=True)
class Exit:
    """How a job ended."""

    code: int
    """Exit status; negative: the signal."""
    cpu_s: float
    """CPU time of all its processes that were waited for."""
    timed_out: bool = False
    """The wall backstop was reached: our fault, not the candidate's."""
    out_of_memory: bool = False
    """Killed for the memory of all its processes together, where the sandbox limits that."""


class Running(Protocol):
    """A job that was started. Maker: `Sandbox.start`. For one thread at a time."""

    def wait(self, wall_s: float) -> Exit:
        """Wait for the end, leave no descendant; at `wall_s` everything is killed."""
        ...

    def stop(self) -> None:
        """Kill the job with all its descendants, and reap it. Once is enough, twice no error."""
        ...

    def processes(self) -> list[psutil.Process]:
        """The job's own processes, without those that make up the sandbox. Raises psutil.Error
        while they end."""
        ...


class Sandbox(Protocol):
    """One way to isolate a job."""

    name: str

    @property
    def system(self) -> str:
        """Names the compilers and libraries that a job finds; "" for those of this machine."""
        ...

    def missing(self) -> str | None:
        """None where it works on this machine, else a sentence: why not, and what to install."""
        ...

    def path(self, mount: Mount) -> str:
        """Where a job sees the mount."""
        ...

    def start(self, job: Job, *, stdin: int | IO[bytes], output: int | IO[bytes]) -> Running:
        """Start the job; stdout and stderr go to `output`. Raises SandboxError."""
        ...


LIMITER = "prlimit"
_CHILDREN_S = 5.0


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


def exit_code(wait_status: int) -> int:
    """The exit code, or minus the signal, also where bubblewrap or a shell made 128 + it of it."""
    code = os.waitstatus_to_exitcode(wait_status)
    return 128 - code if 128 < code < 128 + signal.NSIG else code


class LocalJob:
    """`Running` for a job that is a child of this process and leads its own process group."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def wait(self, wall_s: float) -> Exit:
        """See Running.wait. Gives the CPU time of the whole tree."""
        process = self._process
        timed_out = not _ended_within(process.pid, wall_s)
        with _children_end_too(process.pid) if timed_out else nullcontext():
            if timed_out:
                os.killpg(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return Exit(
            code=exit_code(status), cpu_s=usage.ru_utime + usage.ru_stime, timed_out=timed_out
        )

    def stop(self) -> None:
        """See Running.stop."""
        if self._process.returncode is None:
            with _children_end_too(self._process.pid):
                try:
                    os.killpg(self._process.pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    self._process.kill()
                self._process.wait()

    def processes(self) -> list[psutil.Process]:
        """See Running.processes."""
        root = psutil.Process(self._process.pid)
        return [p for p in (root, *root.children(recursive=True)) if p.name() != "bwrap"]


def _ended_within(pid: int, wall_s: float) -> bool:
    handle = os.pidfd_open(pid)
    try:
        return _tells_end(handle, wall_s)
    finally:
        os.close(handle)


def _tells_end(handle: int, wall_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(wall_s * 1000))


@contextmanager
def _children_end_too(pid: int) -> Iterator[None]:
    """Wait after the block, which ends process `pid`, for its children: they die of its death a
    moment later (the first process of bubblewrap's namespace, and with it all others there)."""
    with ExitStack() as opened:
        handles = []
        for child in _children(pid):
            with suppress(ProcessLookupError):
                handles.append(os.pidfd_open(child))
                opened.callback(os.close, handles[-1])
        yield
        for handle in handles:
            _tells_end(handle, _CHILDREN_S)


def _children(pid: int) -> list[int]:
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:  # a kernel without this file
        with suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
    return []
