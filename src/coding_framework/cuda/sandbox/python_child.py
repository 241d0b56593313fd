"""A Python process of this environment, with PyTorch, in a sandbox: for code from outside.

    child = PythonChild(choose_sandbox(), "coding_framework.cuda.expected.reference_sandbox:answer")
    answer = child.ask(request)

It sees Python, the packages of this environment and this package, all read-only, and no other file;
no network; it can start no process. A request and an answer are bytes, of bounded size, and each
answer has bounded time. What it answers is untrusted.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from coding_framework.cuda.sandbox.base import GIB, Job, Limits, Mount, Running, Sandbox
from coding_framework.errors import SandboxError, UsageError

FRAME = struct.Struct("<Q")
"""The length of a request or answer; an answer's first byte is one of the next two."""
DONE, FAILED = b"+", b"-"
_LIMITS = Limits(cpu_s=60, memory_bytes=8 * GIB, file_bytes=1 << 20, open_files=128)
_START_S, _ANSWER_S = 300.0, 120.0
"""An answer may take twice its limit of CPU time: who sleeps holds a place."""
_LOOK_S = 0.25
_MOST_BYTES = GIB
_INSIDE = "/reference"
_INNER = "coding_framework.cuda.sandbox.confined_python"
_STRONG = ("bubblewrap", "docker")
_IMPORTED_FROM = Path(__file__).resolve().parents[3]
"""Itself, since an import lists it: Landlock, in Docker, forbids to list what is not given."""


class ChildEndedError(UsageError):
    """The code that it ran ended it, or used up what it may use."""


class PythonChild:
    """One such process; it starts with the first request, and ends with `stop` or with us."""

    def __init__(
        self,
        sandbox: Sandbox,
        answer: str,
        *,
        gone: threading.Event | None = None,
    ) -> None:
        """answer: MODULE:FUNCTION, from bytes to bytes. gone: set when nobody waits for an answer
        any more, which ends it. Raises UsageError for a sandbox that shuts too little out."""
        if sandbox.name not in _STRONG:
            raise UsageError(
                f"the {sandbox.name} sandbox does not shut out enough for code of others: install "
                "bubblewrap (`make setup`), or allow references of trusted tokens only"
            )
        self._sandbox, self._answer = sandbox, answer
        self._gone = gone
        self._running: Running | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._to = self._from = -1

    def ask(
        self, request: bytes, *, most_bytes: int = _MOST_BYTES, wall_s: float = _ANSWER_S
    ) -> bytes:
        """Its answer. Raises UsageError where it says that the request's code failed,
        ChildEndedError where that code ended it, took over `wall_s` or said over `most_bytes`."""
        try:
            if self._running is None:
                self._start()
            ends = time.monotonic() + wall_s
            self._send(FRAME.pack(len(request)) + request, ends)
            (length,) = FRAME.unpack(self._receive(FRAME.size, ends))
            if not 0 < length <= most_bytes:
                raise ChildEndedError(
                    f"the reference gives over {most_bytes} bytes: make it smaller"
                )
            answer = self._receive(length, ends)
        except BaseException:
            self.stop()
            raise
        if answer[:1] == DONE:
            return answer[1:]
        said = " ".join(answer[1:601].decode("utf-8", "replace").split())
        raise UsageError("".join(c if c.isprintable() else "?" for c in said)[:500])

    def stop(self) -> None:
        """End it; the next request starts another."""
        for handle in (self._to, self._from):
            if handle >= 0:
                os.close(handle)
        self._to = self._from = -1
        if self._running is not None:
            self._running.stop()
            self._running = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cuda-rl-reference-")
        os.chmod(self._folder.name, 0o755)
        theirs_in, self._to = os.pipe2(os.O_CLOEXEC)
        self._from, theirs_out = os.pipe2(os.O_CLOEXEC)
        job = Job(
            command=(sys.executable, "-P", "-s", "-B", "-m", _INNER, self._answer),
            mounts=_mounts(),
            limits=_LIMITS,
            folder=Mount(Path(self._folder.name), _INSIDE, writable=True),
            environment=_environment(),
        )
        try:
            self._running = self._sandbox.start(job, stdin=theirs_in, output=theirs_out)
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        os.set_blocking(self._to, False)
        try:
            began = self._receive(FRAME.size, time.monotonic() + _START_S) == FRAME.pack(0)
        except ChildEndedError:
            began = False
        if not began:
            raise SandboxError(
                f"Python with PyTorch does not start in the {self._sandbox.name} sandbox: see that "
                f"it can read {sys.prefix} and {_IMPORTED_FROM}"
            )
        self._folder.cleanup()  # imports want a place to write; in a folder that is gone nobody can

    def _send(self, data: bytes, ends: float) -> None:
        view = memoryview(data)
        while view:
            self._await(self._to, select.POLLOUT, ends)
            try:
                view = view[os.write(self._to, view[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._ended() from None

    def _receive(self, count: int, ends: float) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._await(self._from, select.POLLIN, ends)
            part = os.read(self._from, min(count - len(parts), 1 << 20))
            if not part:
                raise self._ended()
            parts += part
        return bytes(parts)

    def _await(self, handle: int, event: int, ends: float) -> None:
        poll = select.poll()
        poll.register(handle, event)
        while not poll.poll(1000 * max(0.0, min(_LOOK_S, ends - time.monotonic()))):
            if self._gone is not None and self._gone.is_set():
                raise ChildEndedError("nobody waits for the reference any more")
            if time.monotonic() >= ends:
                raise ChildEndedError("the reference takes too long: make it smaller")

    def _ended(self) -> ChildEndedError:
        return ChildEndedError(
            f"the reference ended its process, or used over {_LIMITS.cpu_s} s of CPU time or "
            f"{_LIMITS.memory_bytes // GIB} GiB: correct it, or make it smaller"
        )


def _mounts() -> tuple[Mount, ...]:
    """Python, the packages and this package's folder, each where it is, and what torch wants to
    begin."""
    folders = {
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(os.path.realpath(sys.executable)).parents[1],
    }
    folders -= {Path("/usr"), Path("/")}  # every sandbox shows it
    outer = [f for f in sorted(folders) if not any(o != f and f.is_relative_to(o) for o in folders)]
    return tuple(Mount(f, str(f)) for f in (*outer, _IMPORTED_FROM, Path("/dev/urandom")))


def _environment() -> dict[str, str]:
    import torch

    return {
        "PYTHONPATH": str(_IMPORTED_FROM),
        "USER": "reference",  # torch asks who it is
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        # it cannot read what the processor is
        "ATEN_CPU_CAPABILITY": torch.backends.cpu.get_cpu_capability().lower(),
    }
