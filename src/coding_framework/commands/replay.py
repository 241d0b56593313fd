"""`cuda-rl replay`: stored conversations, listed or shown turn by turn."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_command, add_json


def add_to(commands: Any) -> None:
    p = add_command(commands, "replay", run, "Show a stored conversation turn by turn.")
    p.add_argument(
        "run_path", type=Path, metavar="RUN", help="a folder or file that one of our commands wrote"
    )
    p.add_argument(
        "episode",
        nargs="?",
        default=None,
        metavar="EPISODE",
        help="id or number of the conversation; without it all conversations are listed",
    )
    p.add_argument(
        "--reward",
        default=None,
        metavar="PRESET",
        help="compute the rewards anew by this preset: weighted, gated, kevin or correct",
    )
    add_json(p, "print the conversation as one JSON object")


def run(args: Namespace) -> int:
    from rich.console import Console

    from coding_framework.evaluation import replay

    console = Console(soft_wrap=not sys.stdout.isatty())
    if args.episode is None:
        console.print(replay.episodes_table(replay.episodes(args.run_path)))
        return EXIT_OK
    state = replay.find_episode(args.run_path, args.episode)
    if args.json:
        print((replay.rescored(state, args.reward) if args.reward else state).model_dump_json())
    else:
        replay.show_episode(state, console, args.reward)
    return EXIT_OK
