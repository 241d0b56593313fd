"""Runs a function in a child process, whose memory the system gets back, and ends all our
processes so that none is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

import psutil

from coding_framework.errors import CodingFrameworkError, InfrastructureError
from coding_framework.monitoring.progress import activity, adopt_activity

P = ParamSpec("P")
T = TypeVar("T")

_GRACE_S = 5.0
_TELL_S = 2.0
"""Between two words of a child on what it does."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


def run_in_child(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`function(*args, **kwargs)` in a fresh interpreter; function, arguments and result are
    pickled.

    Meanwhile `progress.activity` is what the child does. The child ends with this process, however
    that ends, and at once where this call is interrupted. An error of ours passes through; another
    is raised as InfrastructureError with its sentence, and so is the child's death (out of memory,
    a signal).
    """
    child = Child(function, *args, **kwargs)
    try:
        return child.result(adopt_activity)  # type: ignore[no-any-return]
    finally:
        adopt_activity(None)
        child.end()


class Child:
    """A function that runs in a fresh interpreter, which ends with the thread that made this."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        context = get_context("spawn")
        self._name = function.__name__
        self._ours, theirs = context.Pipe(duplex=False)
        told = (theirs, os.getpid(), function, args, kwargs)
        self._process = context.Process(target=_child, args=told)
        self._process.start()
        theirs.close()

    def result(self, told: Callable[[Any], None] = lambda _: None) -> Any:
        """What the function gives. told: is handed what the child does, now and then. Raises as
        `run_in_child`."""
        try:
            kind, value = self._ours.recv()
            while kind == "does":
                told(value)
                kind, value = self._ours.recv()
            self._process.join()
        except EOFError as e:
            self._process.join()
            raise InfrastructureError(
                f"the process of {self._name} ended with {_how(self._process.exitcode)}: see that "
                "there is memory enough, and run the same command again"
            ) from e
        if kind == "failed":
            raise value
        return value

    def end(self) -> None:
        """End the process, where it still runs."""
        _end(self._process)


def _child(
    theirs: Connection,
    parent: int,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it ends us
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(theirs, done), daemon=True)
    teller.start()

    def answer(kind: str, value: Any) -> None:
        done.set()
        teller.join()  # the pipe takes one message at a time
        theirs.send((kind, value))

    try:
        answer("done", function(*args, **kwargs))
    except CodingFrameworkError as e:
        answer("failed", type(e)(str(e)))
    except Exception as e:  # the boundary of the process: whatever it was, the parent must hear
        if os.environ.get("CUDA_RL_DEBUG"):
            raise
        text = " ".join(f"{type(e).__name__}: {e}".split())[:300]
        answer("failed", InfrastructureError(f"{function.__name__} failed ({text})"))


def _tell(theirs: Connection, done: threading.Event) -> None:
    """Say now and then what this process does."""
    with contextlib.suppress(OSError):  # the parent is gone
        while not done.wait(_TELL_S):
            theirs.send(("does", activity()))


def _end(process: Any) -> None:
    if process.is_alive():
        process.terminate()
        process.join(_GRACE_S)
    if process.is_alive():
        process.kill()
        process.join()


def _how(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"signal {-exitcode}"
    return f"status {exitcode}"


def adopt_orphans(adopt: bool = True) -> bool:
    """From now on a descendant whose parent ended becomes a child of this process, so that
    `descendants` finds it; with False of init, as usual. Gives what held before."""
    libc, before = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
    return bool(before.value)


def descendants() -> list[psutil.Process]:
    """All processes below this one, parents first."""
    return psutil.Process().children(recursive=True)


def kill_all(find: Callable[[], list[psutil.Process]]) -> None:
    """Kill what `find` finds and wait for it, until nothing is found (five times at most)."""
    for _ in range(5):  # a process that is just being started shows up in the next round
        left = find()
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)
