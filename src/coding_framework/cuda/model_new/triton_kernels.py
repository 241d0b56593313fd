"""Triton kernels that an answer launches, and the files that their compiler needs.

A request is JSON that the answer's process wrote: it is read in the sandbox of the compiler alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from coding_framework.cuda.host.program import ANSWER_NAME
from coding_framework.cuda.host.python_runtime import interpreter, python_runtime
from coding_framework.cuda.host.wire import Malformed
from coding_framework.cuda.sandbox import Mount

TRITON = "triton==3.6.0"
_TRIED = ((3, 6), (3, 9))
"""The oldest and the newest whose compiler takes our changes."""
PROGRAM = Path(__file__).with_name("triton_program.py")
LAUNCHES_NAME = "triton.json"
"""File of a build: what the answer's process needs to launch its kernels."""
MAX_LATE_KERNELS = 64
"""Ways in which an answer's kernels are called: each is compiled when it is met."""
_IMPORTS = re.compile(rb"^\s*(?:import|from)\s+triton\b", re.MULTILINE)
_MAX_REQUEST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """A kernel and how it is called. Maker: the answer, by a message; consumer: the compiler."""

    text: str
    digest: str
    """Of the message; the answer's process knows the request by it."""


def decode_kernel(payload: memoryview) -> KernelRequest:
    """Read a request. Raises Malformed."""
    if len(payload) > _MAX_REQUEST_BYTES:
        raise Malformed(f"a Triton kernel's arguments of {len(payload)} bytes")
    try:
        text = bytes(payload).decode()
    except UnicodeDecodeError as e:
        raise Malformed(str(e)) from e
    return KernelRequest(text, hashlib.sha256(payload).hexdigest())


def triton_command(
    path: Callable[[Mount], str],
) -> tuple[list[str], tuple[Mount, ...], dict[str, str]]:
    """Command, mounts and environment of the program that compiles; path: a mount's place in the
    sandbox."""
    folder = triton_folder()
    assert folder is not None
    runtime, package = Mount(python_runtime(), "/opt/python"), Mount(folder, "/opt/packages/triton")
    command, environment = interpreter(path(runtime))
    environment["PYTHONPATH"] = str(Path(path(package)).parent)
    return [*command, PROGRAM.name], (runtime, package), environment


@lru_cache(maxsize=1)
def triton_fingerprint() -> str:
    """Of what compiles; of nothing where Triton is not installed."""
    if triton_folder() is None:
        return "no triton"
    program = hashlib.sha256(PROGRAM.read_bytes()).hexdigest()
    return f"triton {version('triton')} {program} {python_runtime().name}"


@lru_cache(maxsize=1)
def triton_folder() -> Path | None:
    """Where the package `triton` lies; None where it is not installed."""
    found = importlib.util.find_spec("triton")
    return None if found is None or found.origin is None else Path(found.origin).parent


def triton_gap() -> str:
    """Why no answer in Triton compiles here, and what to do; empty where they do."""
    if triton_folder() is None:
        return f"Triton is not installed here: pip install {TRITON}"
    here = version("triton")
    if not _TRIED[0] <= tuple(map(int, here.split(".")[:2])) <= _TRIED[1]:
        return f"Triton {here} is installed here, and 3.6 to 3.9 are tried: pip install {TRITON}"
    return ""


def imports_triton(build: Path) -> bool:
    """Whether a build is that of an answer with Triton kernels."""
    answer = build / ANSWER_NAME
    return answer.exists() and _IMPORTS.search(answer.read_bytes()) is not None
