"""`cuda-rl explain`: a page on one kernel: its verdict, why it is so, and what to try next."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_command, add_flags, add_switch, config_from
from coding_framework.commands.judge import FRESH, JUDGING
from coding_framework.commands.one_kernel import add_task, judge_one, read_kernel, read_task
from coding_framework.explanation.page import page
from coding_framework.wiring import JudgeSettings


def add_to(commands: Any) -> None:
    text = "Judge a kernel and explain the verdict in a page."
    p = add_command(commands, "explain", run, text)
    p.add_argument("kernel", metavar="KERNEL", help="a .cu file, or a KernelBench answer (.py)")
    add_task(p)
    add_flags(p, JudgeSettings, JUDGING)
    add_switch(p, "--fresh", FRESH)


def run(args: Namespace) -> int:
    settings = config_from(JudgeSettings, args)
    code = read_kernel(args.kernel)
    task = read_task(args)
    verdict = judge_one(task, code, settings, fresh=args.fresh)
    print(page(verdict, task, code), flush=True)
    return EXIT_OK
