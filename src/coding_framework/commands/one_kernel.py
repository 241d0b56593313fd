"""One kernel from a file, and one verdict in this process: what `judge`, `explain` and the doctor
share."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from coding_framework.commands.waiting import waiting
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.paths import cache_dir
from coding_framework.types import Candidate, Task, Verdict, source_text
from coding_framework.wiring import JudgeSettings, judge_config

if TYPE_CHECKING:
    from coding_framework.cuda.judge import Judge, JudgeConfig

KEPT = "verdicts"
"""Below the cache folder."""
KEPT_BYTES = 256 << 20
MAX_KERNEL_BYTES = 16 * 2**20
"""A larger file is a wrong path, not a kernel; what is smaller the judge decides on."""


def add_task(parser: ArgumentParser, flag: str = "--task") -> None:
    """The flags that say which task, for `read_task`."""
    needed = {"required": True} if flag.startswith("-") else {}
    text = "a name, a file, or FILE.py:CLASS for a PyTorch module of your own"
    parser.add_argument(flag, **needed, metavar="TASK", help=text)  # type: ignore[arg-type]
    add_module_flags(parser)


def add_module_flags(parser: ArgumentParser) -> None:
    """What the file of a module does not say."""
    parser.add_argument(
        "--inputs",
        default="",
        metavar="SHAPES",
        help="with FILE.py:CLASS: what forward takes, by commas: 4x128x256 for a tensor, "
        "4x128:int64:1000 for whole numbers below 1000, 0.5 for a number",
    )
    parser.add_argument(
        "--init", default="", metavar="ARGUMENTS", help="with FILE.py:CLASS: '256, bias=False'"
    )
    parser.add_argument(
        "--precision",
        choices=["fp32", "tf32"],
        default="fp32",
        help="tf32: products may read their factors as TF32, also where the task's file does not "
        "ask PyTorch for it",
    )


def read_task(args: Namespace) -> Task:
    """The task of `add_task`. Python runs to be read. Raises UsageError."""
    from coding_framework.data.registry import find_task

    with waiting(f"reading {one_line(args.task, 60)}"):
        task = find_task(args.task, args.inputs, args.init)
        if args.precision == "fp32":
            return task
        from coding_framework.reference_model import in_tf32  # PyTorch

        return task.model_copy(update={"reference": in_tf32(task.reference)})


def judge_one(task: Task, code: str, settings: JudgeSettings, *, fresh: bool = False) -> Verdict:
    """One verdict: unless it has to be `fresh`, what an earlier call said of the same kernel under
    the same conditions, whatever its draws were, else one made in this process. A verdict from
    before is told on stderr."""
    from coding_framework.cuda.choose_backend import choose_backend
    from coding_framework.cuda.many.verdict_cache import VerdictCache, comes_again, conditions_of

    candidate, config = Candidate(code=code), _config(settings)
    kept = VerdictCache(cache_dir() / KEPT, conditions_of(config), KEPT_BYTES)
    backend = choose_backend(config.backend)
    if not fresh and (verdict := kept.get(task, candidate, backend)) is not None:
        told = "judged before, on equal terms: --fresh judges it anew"
        print(f"cuda-rl: {told}", file=sys.stderr, flush=True)
        return verdict
    with waiting(f"judging for {one_line(task.name, 60)}") as tell:
        tell("loading PyTorch")
        verdict = make_one_judge(settings, tell).judge(task, candidate)
    if comes_again(verdict):
        with suppress(InfrastructureError):  # a verdict that cannot be kept is made again
            kept.put(task, candidate, verdict)
    return verdict


def make_one_judge(settings: JudgeSettings, tell: Callable[[str], object]) -> Judge:
    """A judge in this process, which tells its steps. PyTorch compares on one thread, as in the
    pool's workers: on a busy machine the barriers of several cost 20 times what they save
    (measured: 48 s to 3 s)."""
    from coding_framework.cuda.judge import Judge

    judge = Judge(_config(settings), tell=tell)  # begins its own work
    import torch

    torch.set_num_threads(1)
    return judge


def _config(settings: JudgeSettings) -> JudgeConfig:
    return judge_config(**settings.model_dump(exclude={"workers"}))


def read_kernel(name: str) -> str:
    """The kernel's source from a file, or from stdin for "-".

    Every byte keeps its place: what is odd about a source is the verdict's to say. Raises
    UsageError where there is no such file.
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
    return source_text(data)
