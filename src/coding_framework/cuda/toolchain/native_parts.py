"""Native parts of ours (interpreter, host runner), built once with gcc or g++ and cached.

Guaranteed: a build is keyed on its sources, flags, compiler and CPU model; two processes that build
the same thing at once get the same file; a killed build leaves nothing behind that is used later.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from coding_framework.cuda.toolchain.slots import available_cores
from coding_framework.errors import InfrastructureError, MissingToolError
from coding_framework.paths import alone, cache_dir

_AT_ONCE = 4
"""Sources of one part that are compiled at once: the longest takes a third of the whole time."""
_LOOK_EVERY_S = 0.01


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
    build folder. Where several are named, they are compiled beside each other, and what comes of
    them is linked, with the same arguments. Returns the path of the file. Raises MissingToolError
    where the compiler is not installed, InfrastructureError where it fails (our source, our fault)
    or all of it takes longer than `timeout_s`.
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
    with alone(folder / "lock"):
        if target.exists():
            return target
        for left in folder.glob(".build*"):  # of processes that were killed
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=".build", dir=folder))
        try:
            for file_name, text in sources.items():
                (work / file_name).write_text(text)
            end = time.monotonic() + timeout_s
            for commands in _steps(name, arguments, sources):
                failure = _run_beside([[tool, *x] for x in commands], work, end)
                if failure is not None:
                    raise InfrastructureError(
                        f"building {name} with {compiler} failed: {failure.strip()[:2000]}"
                    )
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


def _run_beside(commands: Sequence[Sequence[str]], work: Path, end: float) -> str | None:
    """Run all in `work`, some at once. What the first that failed said; None where none did.
    Whatever ends this (a failure, the time, Ctrl-C) ends those that still run."""
    at_once = min(available_cores(), _AT_ONCE)
    waiting = list(enumerate(commands))
    running: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                number, command = waiting.pop(0)
                said = work / f"{number}.said"
                running[said] = _start(command, work, said)
            for said, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[said]
                if process.returncode != 0:
                    return said.read_text(errors="replace") or f"exit {process.returncode}"
            if time.monotonic() > end:
                return "it took too long"
            time.sleep(_LOOK_EVERY_S)
    finally:
        for process in running.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None


def _start(command: Sequence[str], work: Path, said: Path) -> subprocess.Popen[bytes]:
    """In a group of its own, so that what a compiler starts ends with it."""
    with said.open("wb") as file:
        return subprocess.Popen(
            command, cwd=work, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip


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
