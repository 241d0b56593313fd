"""`cuda-rl write --task TASK`: a kernel for a module without any model, and its verdict."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, Literal

from coding_framework.commands.failures import EXIT_HIT, EXIT_OK
from coding_framework.commands.flags import add_command, add_flags, add_json, config_from
from coding_framework.commands.judge import JUDGING
from coding_framework.commands.one_kernel import add_task, judge_one, read_task
from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic
from coding_framework.types import Config
from coding_framework.wiring import JudgeSettings


class WriteOptions(Config):
    """Which kernel is written, and where it goes."""

    level: Literal["naive", "fast"] = "fast"
    """naive: one thread an output or a row; fast: the same kernels with the workers that suit them,
    where there are any."""
    output: Path | None = None
    """File of the kernel. Default: the task's name with .cu, in this folder."""


def add_to(commands: Any) -> None:
    text = "Write a kernel for a PyTorch module, without a model, and judge it."
    p = add_command(commands, "write", run, text)
    add_task(p)
    add_flags(p, WriteOptions, WriteOptions.model_fields)
    add_flags(p, JudgeSettings, JUDGING)
    add_json(p, "print the verdict as one JSON object")


def run(args: Namespace) -> int:
    settings = config_from(JudgeSettings, args)
    options = config_from(WriteOptions, args)
    task = read_task(args)
    output = options.output or Path(f"{task.name}.cu")
    if output.exists():
        raise UsageError(f"{output} is there already: choose another --output, or remove it")
    from coding_framework.data.kernels import kernels_of
    from coding_framework.explanation.verdict_text import verdict_text

    start = time.monotonic()
    kernels = kernels_of(task)
    kernel = kernels[-1] if options.level == "fast" else kernels[0]
    write_atomic(output, kernel.code)
    seconds = time.monotonic() - start
    told = f"cuda-rl: {output}: level {kernel.level}, written in {seconds:.1f} s"
    print(told, file=sys.stderr, flush=True)
    verdict = judge_one(task, kernel.code, settings)
    print(verdict.model_dump_json() if args.json else verdict_text(verdict, task), flush=True)
    return EXIT_OK if verdict.correct else EXIT_HIT
