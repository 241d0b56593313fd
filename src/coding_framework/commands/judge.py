"""`cuda-rl judge`: one kernel, one task, one verdict."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from coding_framework.commands.failures import EXIT_HIT, EXIT_OK
from coding_framework.commands.flags import (
    add_command,
    add_flags,
    add_json,
    add_switch,
    config_from,
)
from coding_framework.commands.waiting import Waiting
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.types import Candidate, HeadersName, Task, Verdict
from coding_framework.wiring import JudgeSettings

if TYPE_CHECKING:
    from coding_framework.cuda.judge import Judge

JUDGING = ("backend", "sandbox", "seed", "baselines", "profile")
"""Fields of `JudgeSettings` that are flags of every command that judges."""
MAX_KERNEL_BYTES = 16 * 2**20
"""A larger file is a wrong path, not a kernel; what is smaller the judge decides on."""


def add_to(commands: Any) -> None:
    p = add_command(commands, "judge", run, "Judge one kernel for one task.")
    p.add_argument("--task", required=True, metavar="TASK", help="a name or a task file")
    p.add_argument("file", nargs="?", metavar="FILE", help="the same as --kernel FILE")
    p.add_argument(
        "--kernel",
        metavar="FILE",
        help="a .cu file, or a KernelBench answer (.py with ModelNew); - reads stdin",
    )
    p.add_argument(
        "--watch",
        metavar="FILE",
        help="judge this file now and again each time it is saved, until Ctrl-C: the judge stays "
        "loaded, so that a verdict takes a second",
    )
    add_flags(p, JudgeSettings, JUDGING)
    p.add_argument(
        "--headers",
        choices=get_args(HeadersName),
        default="small",
        help="torch: compile also against the real torch headers, which takes 45 s and 3 GB, and "
        "compare (default: small)",
    )
    add_switch(p, "--fail-on-wrong", "end with status 1 where the verdict is not correct, for CI")
    add_json(p, "print the verdict as one JSON object")


def run(args: Namespace) -> int:
    settings = config_from(JudgeSettings, args)
    name = _one_file(args)
    from coding_framework.commands.verdict_text import verdict_text
    from coding_framework.data.registry import find_task

    task = find_task(args.task)
    if args.watch is not None:
        from coding_framework.commands.judge_watch import watch

        return watch(name, task, settings, as_json=args.json)
    code = read_kernel(name)
    verdict = judge_one(task, code, settings)
    print(verdict.model_dump_json() if args.json else verdict_text(verdict), flush=True)
    if args.headers == "torch":
        _print_header_comparison(code, settings.sandbox)
    return EXIT_HIT if args.fail_on_wrong and not verdict.correct else EXIT_OK


def _one_file(args: Namespace) -> str:
    """The kernel's file, under whichever name it was given. Raises UsageError."""
    named = {"FILE": args.file, "--kernel": args.kernel, "--watch": args.watch}
    given = {flag: name for flag, name in named.items() if name is not None}
    if not given:
        raise UsageError(
            "the following arguments are required: --kernel FILE, or --watch FILE to judge it at "
            "each save (see `cuda-rl judge --help`)"
        )
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} name a kernel each: give one")
    if args.watch is not None and (args.fail_on_wrong or args.headers == "torch"):
        raise UsageError("--watch does not end: leave out --fail-on-wrong and --headers torch")
    return str(*given.values())


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


def _print_header_comparison(code: str, sandbox: str) -> None:
    from coding_framework.commands.header_comparison import compare_headers
    from coding_framework.monitoring.text import one_line

    print("compiling against the real torch headers, about 45 s ...", file=sys.stderr, flush=True)
    print(f"headers: {one_line(str(compare_headers(code, sandbox)), 1000)}", file=sys.stderr)


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
