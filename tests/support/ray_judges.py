"""Judges that a Ray pool is tested with beside the real one; no test is in here."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from coding_framework.errors import UsageError
from coding_framework.types import Candidate, Status, Task, Verdict


class SlowJudge:
    """Answers after as many seconds as the candidate says, or when there is a file of the name
    that it says, and writes down when it began."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._now = 0

    async def __call__(self, task: Task, code: str) -> Verdict:
        if code == "wrong use":
            raise UsageError("the task is wrong: correct it")
        if code == "a bug":
            raise ZeroDivisionError("by zero")
        self._now += 1
        name, _, seconds = code.partition(" ")
        with (self._folder / name).open("a") as file:
            file.write(f"{os.getpid()} {self._now}\n")
        if seconds.replace(".", "").isdigit():
            await asyncio.sleep(float(seconds))
        else:
            while not (self._folder / seconds).exists():
                await asyncio.sleep(0.05)
        self._now -= 1
        return Verdict(
            status=Status.COMPILE_ERROR,
            reason="no",
            task=task.name,
            candidate_sha256=Candidate(code=code).sha256,
            backend="emulator",
        )


def make_slow_judge(folder: str) -> SlowJudge:
    return SlowJudge(folder)


def make_seeing_judge(folder: str) -> SlowJudge:
    """As `make_slow_judge`; a file's name says which GPUs it sees."""
    (Path(folder) / f"sees {os.environ.get('CUDA_VISIBLE_DEVICES')}").touch()
    return SlowJudge(folder)
