"""`cuda-rl judge`: one kernel, one task, one verdict."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from coding_framework.commands.failures import EXIT_HIT, EXIT_OK
from coding_framework.commands.flags import (
    add_command,
    add_flags,
    add_json,
    add_switch,
    config_from,
)
from coding_framework.commands.one_kernel import add_task, judge_one, read_kernel, read_task
from coding_framework.errors import UsageError
from coding_framework.wiring import JudgeSettings

JUDGING = ("backend", "sandbox", "seed", "baselines", "profile")
"""Fields of `JudgeSettings` that are flags of every command that judges."""
FRESH = "judge on new inputs, even where an equal judge has given a verdict on this kernel before"
OF_THE_JUDGE = tuple(name for name in (*JUDGING, "workers") if name != "seed")
"""Where the command's seed is that of tasks and sampling; inputs stay secret."""


def add_to(commands: Any) -> None:
    p = add_command(commands, "judge", run, "Judge one kernel for one task.")
    p.first = ("task", "inputs", "init", "kernel", "watch", "backend", "fail_on_wrong", "json")
    add_task(p)
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
        "loaded, so that only the first verdict waits for it",
    )
    add_flags(p, JudgeSettings, JUDGING)
    add_switch(p, "--fresh", FRESH)
    add_switch(p, "--fail-on-wrong", "end with status 1 where the verdict is not correct, for CI")
    add_json(p, "print the verdict as one JSON object")


def run(args: Namespace) -> int:
    settings = config_from(JudgeSettings, args)
    name = _one_file(args)
    from coding_framework.explanation.verdict_text import verdict_text

    task = read_task(args)
    if args.watch is not None:
        from coding_framework.commands.judge_watch import watch

        return watch(name, task, settings, as_json=args.json)
    code = read_kernel(name)
    verdict = judge_one(task, code, settings, fresh=args.fresh)
    print(verdict.model_dump_json() if args.json else verdict_text(verdict, task), flush=True)
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
    if args.watch is not None and args.fail_on_wrong:
        raise UsageError("--watch does not end: leave out --fail-on-wrong")
    return str(*given.values())
