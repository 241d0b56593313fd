"""Native: a process group, rlimits, a scrubbed environment, and Landlock where the kernel has it.
The weakest sandbox, for machines (many containers) that allow no namespaces.

Guaranteed: limits on CPU time, memory and file size; no secret in the environment; the process
group is killed at the end; the first process of the job dies with the judge. With Landlock (Linux
5.13; whole from 6.12) also: no file outside the job's own, no TCP, no signal to others. NOT
guaranteed: anything about UDP, or about a descendant that leaves its process group; the host
runner's own system call filter covers both for candidates' host code.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import IO

from coding_framework.cuda.sandbox.base import (
    LIMITER,
    RANDOM_DEVICES,
    Job,
    LocalJob,
    Mount,
    limited,
)
from coding_framework.cuda.sandbox.landlock import confined, hides_files, launcher
from coding_framework.errors import SandboxError


class NativeSandbox:
    """`Sandbox` without namespaces."""

    name = "native"
    system = ""

    def missing(self) -> str | None:
        """See Sandbox.missing."""
        if shutil.which(LIMITER) is None:
            return f"{LIMITER} is not installed: install your system's util-linux package"
        return None

    @property
    def hides_files(self) -> bool:
        """Whether this kernel has Landlock."""
        return hides_files()

    def path(self, mount: Mount) -> str:
        """See Sandbox.path: paths cannot be moved."""
        return str(mount.host)

    def start(self, job: Job, *, stdin: int | IO[bytes], output: int | IO[bytes]) -> LocalJob:
        """See Sandbox.start."""
        environment = {
            "PATH": os.defpath,
            **job.environment,
            "HOME": str(job.folder.host),
            "TMPDIR": str(job.folder.host),
        }
        mounts = (*job.mounts, job.folder)
        readable = [str(mount.host) for mount in mounts if not mount.writable]
        readable += RANDOM_DEVICES if job.random_devices else ()
        writable = [str(mount.host) for mount in mounts if mount.writable]
        command = confined(str(launcher()), readable, writable, job.command)
        with _empty_input() if stdin == subprocess.DEVNULL else nullcontext(stdin) as given:
            try:
                process = subprocess.Popen(
                    limited(job.limits, command),
                    stdin=given,
                    stdout=output,
                    stderr=output,
                    cwd=job.folder.host,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as e:
                raise SandboxError(f"the native sandbox could not start a process ({e})") from e
        return LocalJob(process)


@contextmanager
def _empty_input() -> Iterator[int]:
    """A standard input at its end, as /dev/null is, but of a kind that nobody can open again by its
    name: a source that includes /dev/stdin does not compile, as in the other sandboxes."""
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        yield theirs.fileno()
