"""`cuda-rl rft`: rejection fine-tuning, the control that reinforcement learning has to beat.

cuda-rl rft MODEL --tasks 3000 --samples 8 --output-dir DIR
"""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import (
    add_command,
    add_flags,
    add_json,
    add_switch,
    config_from,
)
from coding_framework.commands.judge import OF_THE_JUDGE
from coding_framework.run.rejection_options import RejectionOptions
from coding_framework.wiring import JudgeSettings

FIRST = (
    "output_dir", "pool", "tasks", "samples", "turns", "server", "minutes", "dry_run",
)  # fmt: skip
"""Flags that its help shows first."""


def add_to(commands: Any) -> None:
    text = "Let a model answer training tasks, and train it on its own best kernels."
    p = add_command(commands, "rft", run, text)
    p.first = FIRST
    p.add_argument("model", metavar="MODEL", help="a hub name, a folder, or a training run")
    add_flags(p, RejectionOptions, list(RejectionOptions.model_fields))
    add_flags(p, JudgeSettings, OF_THE_JUDGE)
    add_switch(p, "--dry-run", "print what would be answered and learnt, and start nothing")
    add_json(p, "print the result as one JSON object")


def run(args: Namespace) -> int:
    options = config_from(RejectionOptions, args)
    judging = config_from(JudgeSettings, args, OF_THE_JUDGE)
    from coding_framework.run.rejection import ask_only, rejection_fine_tune, training_pool

    if args.dry_run:
        print(options.model_dump_json(indent=2))
        count = len(training_pool(options))
        print(f"{count} tasks, {count * options.samples} conversations; nothing was started")
        return EXIT_OK
    if options.ask_only:
        answers = ask_only(args.model, options, judging)
        print(f"{answers} answers are in {options.output_dir}: the same command without --ask-only "
              "judges them")  # fmt: skip
        return EXIT_OK
    found = rejection_fine_tune(args.model, options, judging)
    if args.json:
        print(json.dumps(found.model_dump(mode="json")))
        return EXIT_OK
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.examples.items()))
    print(
        f"{found.solved} of {found.samples} first answers to {found.tasks} tasks are correct; "
        f"{found.solved_tasks} tasks have one that is, {found.open_tasks} have 10 to 80%\n"
        f"examples: {kinds or 'none'}\nfolder: {options.output_dir}"
    )
    if found.model is not None:
        print(f"model: {found.model}")
    return EXIT_OK
