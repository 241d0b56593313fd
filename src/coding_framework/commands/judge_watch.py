"""`cuda-rl judge --watch FILE`: a judge that stays loaded and judges a file at each save."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.one_kernel import make_one_judge, read_kernel
from coding_framework.commands.waiting import waiting
from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.explanation.verdict_text import verdict_text
from coding_framework.types import Candidate, Task
from coding_framework.wiring import JudgeSettings

POLL_S = 0.05
"""Between two looks at the file: a look takes microseconds, and the user waits for it."""


def watch(name: str, task: Task, settings: JudgeSettings, *, as_json: bool = False) -> int:
    """Judge each version of the file `name` until Ctrl-C. A fault of ours is told, and the next
    save tries again. Raises UsageError where there is no such file at first."""
    path = Path(name)
    read_kernel(name)  # a wrong path is told at once
    with waiting("starting the judge") as tell:
        judge = make_one_judge(settings, tell)
    for code in versions(path):
        start = time.perf_counter()
        try:
            with waiting("judging"):
                verdict = judge.judge(task, Candidate(code=code))
        except UsageError:
            raise  # of the task's: another version of the kernel does not help
        except CodingFrameworkError as e:
            print(f"cuda-rl: {e}", file=sys.stderr, flush=True)
            continue
        print(verdict.model_dump_json() if as_json else verdict_text(verdict, task), flush=True)
        took = time.perf_counter() - start
        print(f"in {took:.1f} s; waiting for {path} to be saved", file=sys.stderr, flush=True)
    return EXIT_OK


def versions(path: Path) -> Iterator[str]:
    """The file's content now, and each other content that it has later; it may be away for a
    moment, as editors replace files."""
    seen: str | None = None
    stamp: tuple[int, int] | None = None
    while True:
        now = _stamp(path)
        if now is not None and now != stamp:
            code = _content(path)
            if code is not None:
                stamp = now
                if code != seen:
                    seen = code
                    yield code
        time.sleep(POLL_S)


def _content(path: Path) -> str | None:
    try:
        return read_kernel(str(path))
    except UsageError:
        return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
