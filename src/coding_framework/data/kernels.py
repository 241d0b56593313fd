"""What the compiler writes for a task: asked for by whoever needs it, written once, kept on disk.

    task -> kept? else a process of our own: read -> levels -> kept -> kernels, naive first

Reading a module takes 0.2 to 0.6 s and a network much longer, so no task is made with its kernel.
It is done in processes of their own: torch.export (2.11) ends a process on its second new thread,
and changes settings of torch that a judge beside it relies on.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coding_framework.errors import InfrastructureError, UnreadableError
from coding_framework.paths import cache_dir, write_atomic
from coding_framework.types import CALLERS, KernelExample, Task

FOLDER = "kernels"
"""Below the cache folder."""
MOST_S = 300.0
"""Wall time in which a task's kernels have to be written; a network of 120 layers takes 90 s."""
_IDLE_S = 30.0
"""A process without work ends after it: it holds half a gigabyte."""
_COMPILER = (
    "read.py", "trace.py", "lookup.py", "graph.py", "kernels.py", "ops", "lower", "cuda",
    "../reference_model",
)  # fmt: skip
"""What kernels depend on, beside the task and PyTorch."""


def kernels_of(task: Task) -> tuple[KernelExample, ...]:
    """The compiler's kernels for a task, naive first, the best guess last; from any thread. Raises
    UnreadableError, which names the operation that has none and its line, or the input."""
    for spec in task.cases[0].inputs:
        if spec.strides:
            raise UnreadableError(
                f"there is no kernel for {spec.name}, which is not contiguous: let get_inputs give "
                "a copy (.contiguous())"
            )
    found = _kept(task)
    if found is None:
        found = _written(task)
    if "refused" in found:
        raise UnreadableError(found["refused"])
    return tuple(KernelExample(task=task.name, **kernel) for kernel in found["kernels"])


def naive_of(task: Task) -> str | None:
    """The naive kernel of a task: its own, else the compiler's; None where there is none, and for a
    task of a caller's, whose reference runs in a sandbox alone."""
    if task.naive_kernel is not None or task.source == CALLERS:
        return task.naive_kernel
    with suppress(UnreadableError):
        return kernels_of(task)[0].code
    return None


def write_all(tasks: Sequence[Task]) -> None:
    """Write what is not kept yet, on all cores. What cannot be written is kept as refused."""

    def write(task: Task) -> None:
        with suppress(UnreadableError):
            kernels_of(task)

    with ThreadPoolExecutor(_cores()) as threads:
        list(threads.map(write, tasks))


@cache
def compiler_digest() -> str:
    """Of all that kernels depend on beside the task."""
    key = hashlib.sha256(f"{sys.version} {version('torch')}".encode())
    folder = Path(__file__).parent
    for part in _COMPILER:
        place = folder / part
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if file.suffix in (".py", ".cu"):
                key.update(file.name.encode() + b"\0" + file.read_bytes())
    return key.hexdigest()


def _digest(task: Task) -> str:
    """Of what a task's kernels depend on: no names."""
    cases = [
        (case.init_args, [(spec.dtype, spec.shape) for spec in case.inputs])
        for case in (*task.cases, *task.gpu_cases)
    ]
    shapes = json.dumps([task.init_args, len(task.cases), cases])
    text = "\0".join((compiler_digest(), task.reference, shapes))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _place(task: Task) -> Path:
    digest = _digest(task)
    return cache_dir() / FOLDER / digest[:2] / f"{digest}.json"


def _kept(task: Task) -> dict[str, Any] | None:
    """What was written before; None where nothing was, or where it is damaged."""
    with suppress(InfrastructureError, OSError, ValueError):
        found = json.loads(_place(task).read_text(encoding="utf-8"))
        if isinstance(found, dict) and ("kernels" in found or "refused" in found):
            return found
    return None


# --- the processes that write ---------------------------------------------------------------------


def _written(task: Task) -> dict[str, Any]:
    """What a process of ours writes, which is kept. Raises UnreadableError where none could say."""
    with _turns():
        writer = _taken()
        try:
            answer = writer.ask(task)
        except BaseException:
            writer.kill()
            raise
        writer.since = time.monotonic()
        _idle().append(writer)
    found: dict[str, Any] = json.loads(answer)
    with suppress(InfrastructureError):  # it is written anew each time
        write_atomic(_place(task), answer)
    return found


def _taken() -> _Writer:
    with suppress(IndexError):
        while True:
            writer = _idle().pop()
            if time.monotonic() - writer.since < _IDLE_S / 2 and writer.process.poll() is None:
                return writer
            writer.kill()
    return _Writer()


@cache
def _of_process(_: int) -> tuple[list[_Writer], threading.Semaphore]:
    return [], threading.Semaphore(_cores())


def _idle() -> list[_Writer]:
    """Those without work; a fork has its own."""
    return _of_process(os.getpid())[0]


def _turns() -> threading.Semaphore:
    return _of_process(os.getpid())[1]


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class _Writer:
    """A process that writes kernels, a task at a time: JSON lines to and fro."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        """It has had no work since then."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coding_framework.data.kernels"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is its parent's to handle
        )

    def ask(self, task: Task) -> bytes:
        """What it wrote. Raises UnreadableError where it ended, or took too long."""
        to, back = self.process.stdin, self.process.stdout
        assert to is not None
        assert back is not None
        late = threading.Timer(MOST_S, self.process.kill)
        late.daemon = True
        late.start()
        try:
            to.write(task.model_dump_json().encode() + b"\n")
            to.flush()
            answer = back.readline()
        except OSError:
            answer = b""
        finally:
            late.cancel()
        if not answer.endswith(b"\n"):
            raise UnreadableError(
                f"the process that writes kernels ended (exit status {self.process.wait()}): the "
                f"module needs more memory than there is, or over {MOST_S:.0f} s"
            )
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _write(task: Task) -> dict[str, Any]:
    """The kernels, or why there are none; on the main thread of a process alone."""
    from coding_framework.data.lower.schedule import levels
    from coding_framework.data.read import read

    try:
        made = levels(read(task), task.name)
    except UnreadableError as e:
        return {"refused": str(e)}
    except Exception as e:  # whatever a module raises where it is run on no values
        said = " ".join(str(e).split())[:300]
        return {"refused": f"the module cannot be read: {type(e).__name__}: {said}"}
    return {"kernels": [kernel.model_dump(exclude={"task"}) for kernel in made]}


def main() -> None:
    """Write kernels until stdin ends, or there was nothing to do for some time."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a module prints is nobody's
    tasks: queue.Queue[bytes] = queue.Queue()

    def receive() -> None:
        for line in sys.stdin.buffer:
            tasks.put(line)
        os._exit(0)  # nobody waits for an answer

    threading.Thread(target=receive, daemon=True).start()
    with suppress(queue.Empty):
        while True:
            line = tasks.get(timeout=_IDLE_S)
            found = _write(Task.model_validate_json(line))
            out.write(json.dumps(found).encode() + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
