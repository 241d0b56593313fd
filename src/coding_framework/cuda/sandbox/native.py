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
import subprocess
from functools import cached_property
from pathlib import Path
from typing import IO

from coding_framework.cuda.native import build_once
from coding_framework.cuda.sandbox.base import LIMITER, Job, Mount, limited
from coding_framework.errors import SandboxError

_SOURCE = Path(__file__).parent / "confine_exec.c"
_READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"),
    *("/etc/ld.so.cache", "/etc/alternatives"),
)


class NativeSandbox:
    """`Sandbox` without namespaces."""

    name = "native"

    def missing(self) -> str | None:
        """See Sandbox.missing."""
        if shutil.which(LIMITER) is None:
            return f"{LIMITER} is not installed: install your system's util-linux package"
        return None

    @cached_property
    def hides_files(self) -> bool:
        """Whether this kernel has Landlock."""
        probe = subprocess.run([self._launcher, "--probe"], capture_output=True, text=True)
        return probe.stdout.strip() not in ("", "0")

    def path(self, mount: Mount) -> str:
        """See Sandbox.path: paths cannot be moved."""
        return str(mount.host)

    def start(
        self, job: Job, *, stdin: int | IO[bytes], output: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """See Sandbox.start."""
        environment = {
            "PATH": os.defpath,
            **job.environment,
            "HOME": str(job.folder.host),
            "TMPDIR": str(job.folder.host),
        }
        command = [str(self._launcher), "--rw", "/dev/null"]
        for path in _READABLE:
            command += ["--ro", path]
        for mount in (*job.mounts, job.folder):
            command += ["--rw" if mount.writable else "--ro", str(mount.host)]
        try:
            return subprocess.Popen(
                limited(job.limits, [*command, "--", *job.command]),
                stdin=stdin,
                stdout=output,
                stderr=output,
                cwd=job.folder.host,
                env=environment,
                start_new_session=True,
            )
        except OSError as e:
            raise SandboxError(f"the native sandbox could not start a process ({e})") from e

    @cached_property
    def _launcher(self) -> Path:
        arguments = ["-O2", "-Wall", _SOURCE.name]
        return build_once(
            "confine_exec", {_SOURCE.name: _SOURCE.read_text()}, arguments, compiler="gcc"
        )
