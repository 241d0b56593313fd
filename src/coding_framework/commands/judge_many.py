"""`cuda-rl judge-many`: many kernels in parallel, a JSON line for each verdict."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.commands.failures import EXIT_OK, EXIT_OURS
from coding_framework.commands.flags import add_command, add_flags, add_json, config_from
from coding_framework.commands.judge import JUDGING, read_kernel
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.wiring import JudgeSettings, make_judge, make_ray_judge

if TYPE_CHECKING:
    from coding_framework.cuda.many.pool import JudgePool
    from coding_framework.training.verl.ray_judge import RayJudgePool, SplitRayJudgePool


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
    pairs = read_pairs(args.tasks_and_kernels)
    faults = asyncio.run(judge_pairs(pairs, settings, output=args.output, ray=args.ray))
    return EXIT_OURS if faults else EXIT_OK


async def judge_pairs(
    pairs: Sequence[Mapping[str, str]],
    settings: JudgeSettings,
    *,
    output: Path | None = None,
    ray: str | None = None,
) -> int:
    """Judge pairs {"id", "task", "code"}: a JSON line each on stdout, and appended to `output`,
    as they end. Returns how many our own faults kept from a verdict. Pairs whose verdict is in
    `output` already are left out; one that ended with our fault is judged again. ray: address of a
    cluster to judge on instead of this machine.
    """
    from coding_framework.data.registry import find_task
    from coding_framework.monitoring.progress import Progress
    from coding_framework.store.lines import JsonlSink

    done = _ids_with_verdict(output) if output is not None else frozenset()
    left = [pair for pair in pairs if pair["id"] not in done]
    tasks = {name: find_task(name) for name in dict.fromkeys(pair["task"] for pair in left)}
    faults = 0
    with ExitStack() as stack:
        sink = stack.enter_context(JsonlSink(output)) if output is not None else None
        total = len(pairs)
        progress = stack.enter_context(
            Progress("judging", total, "kernels", done=total - len(left))
        )
        judge: JudgePool | RayJudgePool | SplitRayJudgePool
        if ray is None:
            judge = make_judge(**settings.model_dump())
        else:
            judge = make_ray_judge(settings, ray)
        stack.callback(judge.close)
        limit = asyncio.Semaphore(2 * judge.capacity)

        async def one(pair: Mapping[str, str]) -> None:
            nonlocal faults
            async with limit:
                try:
                    verdict = await judge(tasks[pair["task"]], pair["code"])
                except InfrastructureError as e:
                    faults += 1
                    line = json.dumps({"id": pair["id"], "error": str(e)})
                else:
                    fields = json.loads(verdict.model_dump_json())
                    line = json.dumps({"id": pair["id"], **fields})
            if sink is not None:
                sink.write_line(line)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            progress.advance()

        async with asyncio.TaskGroup() as group:
            for pair in left:
                group.create_task(one(pair))
    return faults


def _ids_with_verdict(path: Path) -> frozenset[str]:
    """Ids in an output file that have a verdict."""
    from coding_framework.store.lines import read_lines

    ids = set()
    for line in read_lines(path):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(entry, dict) and "status" in entry:
            ids.add(str(entry.get("id")))
    return frozenset(ids)


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
