"""Bubblewrap: namespaces without a daemon. A start costs about 4 ms.

Guaranteed: own user, PID, network, IPC, UTS and mount namespaces; no capability; no /proc, no /sys,
no device but /dev/null and, where the job asks for them, random numbers; nothing writable but the
job's own folder; when the job or the judge dies, every descendant dies. Not guaranteed: what a hole
in the kernel allows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cached_property
from pathlib import Path
from typing import IO

from coding_framework.cuda.sandbox.base import (
    LIMITER,
    LOCAL_FOLDERS,
    RANDOM_DEVICES,
    SYSTEM_FILES,
    SYSTEM_FOLDERS,
    Job,
    LocalJob,
    Mount,
    limited,
)
from coding_framework.errors import SandboxError

INSTALL = "install your system's bubblewrap package (Debian: apt-get install bubblewrap)"


class BubblewrapSandbox:
    """`Sandbox` by bwrap."""

    name = "bubblewrap"
    system = ""

    @cached_property
    def _tool(self) -> str | None:
        return shutil.which("bwrap")

    def missing(self) -> str | None:
        """See Sandbox.missing. Starts a real one: containers often forbid user namespaces."""
        if self._tool is None:
            return f"bwrap is not installed: {INSTALL}"
        if shutil.which(LIMITER) is None:
            return f"{LIMITER} is not installed: install your system's util-linux package"
        try:
            probe = subprocess.run(
                [*self._prefix(), "/bin/true"], capture_output=True, text=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            return f"bwrap cannot be started ({e}): {INSTALL}"
        if probe.returncode != 0:
            said = probe.stderr.strip().splitlines()[-1:] or [f"exit {probe.returncode}"]
            return (
                f"bwrap cannot make its namespaces here ({said[0]}): allow unprivileged user "
                "namespaces, or choose another sandbox"
            )
        return None

    def path(self, mount: Mount) -> str:
        """See Sandbox.path: mounts are moved, so no host path reaches the job."""
        return mount.inside

    def start(self, job: Job, *, stdin: int | IO[bytes], output: int | IO[bytes]) -> LocalJob:
        """See Sandbox.start."""
        command = self._prefix()
        for mount in (*job.mounts, job.folder):
            way = "--bind" if mount.writable else "--ro-bind"
            if mount.host.is_char_device():
                way = "--dev-bind"
            command += [way, str(mount.host), mount.inside]
        for device in RANDOM_DEVICES if job.random_devices else ():
            command += ["--dev-bind-try", device, device]
        for name, value in job.environment.items():
            command += ["--setenv", name, value]
        for folder in (*LOCAL_FOLDERS, "/"):
            command += ["--remount-ro", folder]
        command += ["--chdir", job.folder.inside, "--", *job.command]
        try:
            process = subprocess.Popen(
                limited(job.limits, command),
                stdin=stdin,
                stdout=output,
                stderr=output,
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        except OSError as e:
            raise SandboxError(f"bubblewrap could not be started ({e}): {INSTALL}") from e
        return LocalJob(process)

    def _prefix(self) -> list[str]:
        command = [self._tool or "bwrap", "--unshare-all", "--unshare-user", "--die-with-parent"]
        command += ["--new-session", "--cap-drop", "ALL", "--uid", "65534", "--gid", "65534"]
        command += ["--hostname", "sandbox", "--clearenv", "--ro-bind", "/usr", "/usr"]
        for hidden in LOCAL_FOLDERS:
            command += ["--tmpfs", hidden]
        for folder in map(Path, SYSTEM_FOLDERS):
            if folder.is_symlink():
                command += ["--symlink", os.readlink(folder), str(folder)]
            elif folder.is_dir():
                command += ["--ro-bind", str(folder), str(folder)]
        for file in SYSTEM_FILES:
            command += ["--ro-bind-try", file, file]
        return [*command, "--dev-bind", "/dev/null", "/dev/null"]
