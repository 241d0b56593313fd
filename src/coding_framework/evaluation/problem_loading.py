"""Problems of a suite become tasks in processes of their own, with a limit of time and of memory.

A problem is Python that its author wrote and that is run to learn its shapes: it may raise, sleep
for ever or ask for a terabyte. Then it is not applicable, with the reason, and the others go on.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from coding_framework.errors import CodingFrameworkError, InfrastructureError, UsageError
from coding_framework.types import Record, Task

LIMIT_S = 60.0
"""For one problem."""
START_LIMIT_S = 300.0
"""For the process to begin: it imports PyTorch, on a busy machine."""
LEAST_OF_A_PROCESS = 10
"""It takes two seconds to begin, and a quarter of one for a problem of KernelBench."""
MEMORY_BYTES = 64 << 30
"""Of addresses: PyTorch alone maps several GiB."""


class ProblemSource(Record):
    """A problem or task file, or the text of a problem."""

    path: str = ""
    checked: bool = False
    """Whether the file needs the shape sets that the judge's protocol wants."""
    name: str = ""
    code: str = ""
    level: int | None = None

    @classmethod
    def of_line(cls, line: str) -> Self:
        """From a JSON line with `level`, `name` and `code`. Raises UsageError."""
        try:
            row = json.loads(line)
            return cls(name=str(row["name"]), code=str(row["code"]), level=int(row["level"]))
        except (ValueError, KeyError, TypeError) as e:
            raise UsageError(
                f"a line of the problems is no object with level, name and code: {line[:80]!r}"
            ) from e


def load_problems(
    sources: Sequence[ProblemSource], *, limit_s: float = LIMIT_S
) -> list[Task | str]:
    """The task of each, or why it is none. Several processes share them out."""
    count = max(1, min(len(os.sched_getaffinity(0)), len(sources) // LEAST_OF_A_PROCESS))
    parts = [sources[first::count] for first in range(count)]
    with ThreadPoolExecutor(count) as threads:
        tasks = [*threads.map(lambda part: _load_part(part, limit_s), parts)]
    return [tasks[number % count][number // count] for number in range(len(sources))]


def _load_part(sources: Sequence[ProblemSource], limit_s: float) -> list[Task | str]:
    found: list[Task | str] = []
    while len(found) < len(sources):
        with _Loader() as loader:
            for source in sources[len(found) :]:
                answer = loader.ask(source, limit_s)
                found.append(answer)
                if loader.ended:
                    break
    return found


class _Loader:
    """The process that runs problems."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._rest = b""
        self.ended = False

    def __enter__(self) -> Self:
        if self._line(START_LIMIT_S) is None:
            self.__exit__()
            raise InfrastructureError(
                "the process that reads problems did not begin: see that there is memory enough"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, source: ProblemSource, limit_s: float) -> Task | str:
        assert self._process.stdin is not None
        self._process.stdin.write(source.model_dump_json().encode() + b"\n")
        self._process.stdin.flush()
        line = self._line(limit_s)
        if line is None:
            self.ended = True
            died = self._process.poll() is not None
            return "its process was killed" if died else f"it took longer than {limit_s:g} s"
        answer = json.loads(line)
        return Task.model_validate(answer["task"]) if "task" in answer else str(answer["why"])

    def _line(self, limit_s: float) -> bytes | None:
        """The next line that the process writes; None: none within the time, or it has ended."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    self._process.wait()
                    return None
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line


# --- in the process -------------------------------------------------------------------------------


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a problem prints is no answer
        import torch

        from coding_framework.data import registry  # noqa: F401 (its time is not a problem's)

        torch.set_num_threads(1)
        print(json.dumps({"ready": True}), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(line)), file=answers, flush=True)


def _answer(line: str) -> dict[str, Any]:
    from coding_framework.data.kernelbench.problems import load_problem_file, problem_task
    from coding_framework.data.registry import find_task

    source = ProblemSource.model_validate_json(line)
    try:
        if not source.path:
            task = problem_task(source.code, source.name, level=source.level)
        elif source.checked:
            task = find_task(source.path)
        else:
            task = load_problem_file(Path(source.path))
    except CodingFrameworkError as e:
        return {"why": str(e)}
    except BaseException as e:  # whatever a problem does, sys.exit among it
        return {"why": f"it cannot be run ({type(e).__name__}: {e})"}
    return {"task": task.model_dump(mode="json")}


if __name__ == "__main__":
    _main()
