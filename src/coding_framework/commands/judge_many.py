"""`cuda-rl judge-many`: many kernels in parallel, a JSON line for each verdict."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coding_framework.commands.failures import EXIT_OK, EXIT_OURS
from coding_framework.commands.flags import add_command, add_flags, add_json, config_from
from coding_framework.commands.judge import JUDGING, read_kernel
from coding_framework.errors import UsageError
from coding_framework.wiring import JudgeSettings


def add_to(commands: Any) -> None:
    text = "Judge many kernels in parallel, as JSON lines."
    p = add_command(commands, "judge-many", run, text)
    p.add_argument(
        "--tasks-and-kernels",
        required=True,
        type=Path,
        metavar="FILE",
        help='JSON lines {"id", "task", "kernel"} or {"id", "task", "code"}',
    )
    p.add_argument(
        "--output",
        type=Path,
        default=None,
        metavar="FILE",
        help="add the verdicts to this file too, and leave out the ids that it has",
    )
    add_flags(p, JudgeSettings, ["workers"])
    p.add_argument(
        "--ray",
        default=None,
        metavar="ADDRESS",
        help="judge on the nodes of this Ray cluster: HOST:PORT, auto, or local for a new one here",
    )
    add_flags(p, JudgeSettings, JUDGING)
    add_json(p, "always on; accepted because `judge` has it")


def run(args: Namespace) -> int:
    settings = config_from(JudgeSettings, args)
    from coding_framework.wiring import judge_pairs

    pairs = read_pairs(args.tasks_and_kernels)
    faults = asyncio.run(judge_pairs(pairs, settings, output=args.output, ray=args.ray))
    return EXIT_OURS if faults else EXIT_OK


def read_pairs(path: Path) -> list[dict[str, str]]:
    """The pairs of a `judge-many` file as {"id", "task", "code"}; kernels' paths are relative to
    the file. Raises UsageError with the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        what = getattr(e, "strerror", None) or "not UTF-8"
        raise UsageError(f"the pairs file {path} cannot be read ({what})") from e
    pairs = list(_pairs(path, lines))
    ids = [pair["id"] for pair in pairs]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise UsageError(f"{path}: the id {twice!r} is there twice: make the ids unique")
    return pairs


def _pairs(path: Path, lines: Sequence[str]) -> Iterator[dict[str, str]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            pair = json.loads(line)
        except json.JSONDecodeError as e:
            raise UsageError(f"{path}, line {number}: not JSON ({e.msg})") from e
        given = set(pair) if isinstance(pair, dict) else set()
        if not {"id", "task"} < given or len(given & {"kernel", "code"}) != 1:
            raise UsageError(
                f'{path}, line {number}: give an object with "id", "task" and either "kernel" or '
                '"code"'
            )
        code = pair.get("code")
        if code is None:
            code = read_kernel(str(path.parent / str(pair["kernel"])))
        task = str(pair["task"])
        if task.endswith((".json", ".yaml", ".yml", ".py")):
            task = str(path.parent / task)
        yield {"id": str(pair["id"]), "task": task, "code": str(code)}
