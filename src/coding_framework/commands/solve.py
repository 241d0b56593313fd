"""`cuda-rl solve`: the agents work on one task, live in the terminal."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from coding_framework.commands.failures import EXIT_HIT, EXIT_OK
from coding_framework.commands.flags import add_command, add_flags, config_from
from coding_framework.commands.judge import JUDGING
from coding_framework.commands.options import SolveOptions
from coding_framework.wiring import JudgeSettings

FLAGS = [name for name in SolveOptions.model_fields if name not in ("seed", "judge")]
"""`--seed` is added with the judge's flags and sets both."""


FIRST = ("task", "inputs", "init", "model", "server", "turns", "candidates", "output_dir")
"""Flags that its help shows first."""


def add_to(commands: Any) -> None:
    text = "Let the agents work on one task, live in the terminal."
    p = add_command(commands, "solve", run, text)
    p.first = FIRST
    add_flags(p, SolveOptions, FLAGS)
    add_flags(p, JudgeSettings, JUDGING)


def run(args: Namespace) -> int:
    options = config_from(SolveOptions, args, judge=config_from(JudgeSettings, args))
    from coding_framework.commands.solve_conversation import solve

    return EXIT_OK if solve(options).best_turn is not None else EXIT_HIT
