"""`cuda-rl skill install`: how a coding agent uses the judge, where it finds its skills."""

from __future__ import annotations

from argparse import Namespace
from importlib.resources import files
from pathlib import Path
from typing import Any

from coding_framework.commands.failures import EXIT_OK
from coding_framework.commands.flags import add_actions, add_command
from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic

NAME = "cuda-kernel-judge"
FOLDERS = {"claude": Path(".claude/skills"), "codex": Path(".codex/skills")}
"""In the user's home."""


def add_to(commands: Any) -> None:
    actions = add_actions(commands, "skill", "How a coding agent judges kernels, as a skill.")
    p = add_command(actions, "install", run, "Write the skill where an agent finds it.")
    one = p.add_mutually_exclusive_group(required=True)
    for agent, folder in FOLDERS.items():
        text = f"into ~/{folder}"
        one.add_argument(f"--{agent}", dest="agent", action="store_const", const=agent, help=text)
    one.add_argument("--dir", type=Path, metavar="DIR", help="into this folder of skills")


def run(args: Namespace) -> int:
    folder = args.dir or Path.home() / FOLDERS[args.agent]
    file = folder / NAME / "SKILL.md"
    text = (files("coding_framework.integrations") / "SKILL.md").read_text(encoding="utf-8")
    if file.is_symlink() or (file.exists() and NAME not in file.read_text(errors="replace")):
        raise UsageError(f"{file} is another skill: move it away, or give another --dir")
    write_atomic(file, text)
    print(file)
    return EXIT_OK
