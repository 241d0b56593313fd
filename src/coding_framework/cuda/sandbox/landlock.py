"""Landlock, which the kernel offers to any process: no namespace, no privilege needed.

`confine_exec` (the C source beside this file) runs a command that sees no file but those named, and
dies with the process that started it. Where the kernel has no Landlock (before Linux 5.13) the
command runs without.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from coding_framework.cuda.sandbox.base import SYSTEM_FILES, SYSTEM_FOLDERS
from coding_framework.cuda.toolchain.native_parts import build_once

_SOURCE = Path(__file__).parent / "confine_exec.c"


@cache
def launcher() -> Path:
    """Path of `confine_exec`; the first call on a machine compiles it."""
    arguments = ["-O2", "-Wall", _SOURCE.name]
    sources = {_SOURCE.name: _SOURCE.read_text()}
    return build_once("confine_exec", sources, arguments, compiler="gcc")


@cache
def hides_files() -> bool:
    """Whether this kernel has Landlock."""
    probe = subprocess.run([launcher(), "--probe"], capture_output=True, text=True, check=False)
    return probe.stdout.strip() not in ("", "0")


def confined(
    program: str, readable: Iterable[str], writable: Iterable[str], command: Sequence[str]
) -> list[str]:
    """`command` with no more of the file system than these paths, the system's folders and
    /dev/null; `program` is where it finds `confine_exec`."""
    words = [program, "--rw", "/dev/null"]
    for path in ("/usr", *SYSTEM_FOLDERS, *SYSTEM_FILES, *readable):
        words += ["--ro", path]
    for path in writable:
        words += ["--rw", path]
    return [*words, "--", *command]
