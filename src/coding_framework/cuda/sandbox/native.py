"""Native: a process group, rlimits and a scrubbed environment. The weakest sandbox.

Guaranteed: limits on CPU time, memory and file size; no secret in the environment; the process
group is killed at the end. NOT guaranteed: anything about files (what this user may read, the job
may read), the network, or a descendant that leaves its process group; the host runner's own system
call filter covers the last two for candidates' host code, and is all that does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import IO

from coding_framework.cuda.sandbox.base import LIMITER, Job, Mount, limited
from coding_framework.errors import SandboxError


class NativeSandbox:
    """`Sandbox` by rlimits alone."""

    name = "native"

    def missing(self) -> str | None:
        """See Sandbox.missing."""
        if shutil.which(LIMITER) is None:
            return f"{LIMITER} is not installed: install your system's util-linux package"
        return None

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
        try:
            return subprocess.Popen(
                limited(job.limits, job.command),
                stdin=stdin,
                stdout=output,
                stderr=output,
                cwd=job.folder.host,
                env=environment,
                start_new_session=True,
            )
        except OSError as e:
            raise SandboxError(f"the native sandbox could not start a process ({e})") from e
