"""Native parts of ours (interpreter, host runner), built once with gcc or g++ and cached.

Guaranteed: a build is keyed on its sources, flags, compiler and CPU model; two processes that build
the same thing at once get the same file; a killed build leaves nothing behind that is used later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from coding_framework.cuda.slots import available_cores
from coding_framework.errors import InfrastructureError, MissingToolError
from coding_framework.paths import cache_dir


def build_once(
    name: str,
    sources: Mapping[str, str],
    arguments: Sequence[str],
    *,
    compiler: str = "g++",
    timeout_s: float = 300.0,
) -> Path:
    """Compile `sources` (file name -> text) to one file called `name`; later calls find it cached.

    `arguments` go after the compiler as they are; source names in them are relative to a fresh
    build folder. Where several are named, each is compiled beside the others, and what comes of
    them is linked with the same arguments. Returns the path of the file. Raises MissingToolError
    where the compiler is not installed, InfrastructureError where it fails (our source, our fault).
    """
    tool = shutil.which(compiler)
    if tool is None:
        raise MissingToolError(
            f"{compiler} is not installed: run `make setup`, or install your system's g++ package"
        )
    key = hashlib.sha256()
    for part in (_tool_version(tool), _cpu_model(), *arguments):
        key.update(part.encode() + b"\0")
    for file_name, text in sorted(sources.items()):
        key.update(file_name.encode() + b"\0" + text.encode() + b"\0")
    folder = cache_dir() / "native" / key.hexdigest()[:24]
    target = folder / name
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        work = folder / ".build"
        shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
        work.mkdir()
        try:
            for file_name, text in sources.items():
                (work / file_name).write_text(text)
            for commands in _steps(name, arguments, sources):
                _run_beside(tool, commands, work, name, timeout_s)
            os.replace(work / name, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _steps(
    name: str, arguments: Sequence[str], sources: Mapping[str, str]
) -> list[list[list[str]]]:
    """Arguments of the compiler's runs: those of one step run beside each other."""
    units = [x for x in arguments if x in sources]
    if len(units) < 2:
        return [[[*arguments, "-o", name]]]
    common = [x for x in arguments if x not in units]
    linked = [f"{x}.o" if x in units else x for x in arguments]
    return [
        [[*common, "-c", unit, "-o", f"{unit}.o"] for unit in units],
        [[*linked, "-o", name]],
    ]


def _run_beside(
    tool: str, commands: Sequence[Sequence[str]], work: Path, name: str, timeout_s: float
) -> None:
    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tool, *command], cwd=work, capture_output=True, text=True, timeout=timeout_s,
            check=False,
        )  # fmt: skip

    with ThreadPoolExecutor(available_cores()) as pool:
        for done in pool.map(run, commands):
            if done.returncode != 0:
                raise InfrastructureError(
                    f"building {name} with {Path(tool).name} failed: {done.stderr.strip()[:2000]}"
                )


@cache
def _tool_version(tool: str) -> str:
    return subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout


@cache
def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(x for x in lines[:40] if x.startswith(("model name", "flags", "Features")))
