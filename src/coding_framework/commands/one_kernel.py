"""One kernel from a file, and one verdict in this process: what `judge`, `explain` and the doctor
share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from coding_framework.commands.waiting import Waiting
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.types import Candidate, Task, Verdict
from coding_framework.wiring import JudgeSettings

if TYPE_CHECKING:
    from coding_framework.cuda.judge import Judge

MAX_KERNEL_BYTES = 16 * 2**20
"""A larger file is a wrong path, not a kernel; what is smaller the judge decides on."""


def judge_one(task: Task, code: str, settings: JudgeSettings) -> Verdict:
    """One verdict, in this process. What takes more than two seconds is told on stderr."""
    with Waiting(f"judging for {one_line(task.name, 60)}") as waiting:
        waiting.tell("loading PyTorch")
        return make_one_judge(settings, waiting.tell).judge(task, Candidate(code=code))


def make_one_judge(settings: JudgeSettings, tell: Callable[[str], object]) -> Judge:
    """A judge in this process, which tells its steps. PyTorch compares on one thread, as in the
    pool's workers: on a busy machine the barriers of several cost 20 times what they save
    (measured: 48 s to 3 s)."""
    import torch

    from coding_framework.cuda.judge import Judge, JudgeConfig

    torch.set_num_threads(1)
    return Judge(JudgeConfig(**settings.model_dump(exclude={"workers"})), tell=tell)


def read_kernel(name: str) -> str:
    """The kernel's source from a file, or from stdin for "-".

    Bytes that are not UTF-8 become U+FFFD: what is odd about a source is the verdict's to say.
    Raises UsageError where there is no such file.
    """
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_KERNEL_BYTES + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(MAX_KERNEL_BYTES + 1)
    except (OSError, ValueError) as e:
        what = e.strerror if isinstance(e, OSError) else e
        raise UsageError(f"the kernel file {name!r} cannot be read ({what}): check --kernel") from e
    if len(data) > MAX_KERNEL_BYTES:
        raise UsageError(
            f"the kernel {name!r} has over {MAX_KERNEL_BYTES >> 20} MiB: give a CUDA source file"
        )
    return data.decode("utf-8", "replace")
