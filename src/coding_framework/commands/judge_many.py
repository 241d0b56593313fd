"""`cuda-rl judge-many`: many kernels in parallel, a JSON line for each verdict."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.commands.failures import EXIT_OK, status_of
from coding_framework.commands.flags import add_command, add_flags, add_json, add_path, config_from
from coding_framework.commands.judge import JUDGING
from coding_framework.commands.one_kernel import read_kernel
from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.types import Task
from coding_framework.wiring import JudgeSettings, make_judge, make_ray_judge

if TYPE_CHECKING:
    from coding_framework.cuda.many.pool import JudgePool
    from coding_framework.training.verl.ray_judge import RayJudgePool


def add_to(commands: Any) -> None:
    text = "Judge many kernels in parallel, as JSON lines."
    p = add_command(commands, "judge-many", run, text)
    text = 'JSON lines {"id", "task", "kernel"} or {"id", "task", "code"}'
    add_path(p, "--tasks-and-kernels", "FILE", text, required=True)
    text = "add the verdicts to this file too, and leave out the ids that it has"
    add_path(p, "--output", "FILE", text)
    add_flags(p, JudgeSettings, ["workers"])
    p.add_argument(
        "--ray",
        default=None,
        metavar="ADDRESS",
        help="judge on the nodes of this Ray cluster: HOST:PORT, auto, or local for a new one here",
    )
    add_flags(p, JudgeSettings, JUDGING)
    add_json(p, "has no effect: the output is JSON in any case")


def run(args: Namespace) -> int:
    settings = config_from(JudgeSettings, args)
    pairs = read_pairs(args.tasks_and_kernels)
    return asyncio.run(judge_pairs(pairs, settings, output=args.output, ray=args.ray))


@dataclass(frozen=True, slots=True)
class Pair:
    """A line of the file: a kernel to judge, or what is wrong with the line."""

    id: str
    """"line 3" where the line has none."""
    task: str = ""
    code: str = ""
    wrong: str = ""


async def judge_pairs(
    pairs: Sequence[Pair],
    settings: JudgeSettings,
    *,
    output: Path | None = None,
    ray: str | None = None,
) -> int:
    """Judge pairs: a JSON line each on stdout, and appended to `output`, as they end. Returns the
    exit status: our fault where one kept a pair from its verdict, else wrong use where a line could
    not be used. Such a line gets its error, and the others go on. Pairs whose verdict is in
    `output` already are left out; one that ended with an error is judged again. ray: address of a
    cluster to judge on instead of this machine. Raises UsageError where another process adds to
    `output`.
    """
    from coding_framework.monitoring.progress import Progress
    from coding_framework.store.folder import locked
    from coding_framework.store.lines import JsonlSink

    statuses = {EXIT_OK}
    with ExitStack() as stack:
        if output is not None:
            stack.enter_context(locked(_lock_of(output), partial(_in_use, output)))
        done = _ids_with_verdict(output) if output is not None else frozenset()
        left = [pair for pair in pairs if pair.id not in done]
        tasks = _tasks(left)
        sink = stack.enter_context(JsonlSink(output)) if output is not None else None
        total = len(pairs)
        judge: JudgePool | RayJudgePool
        if ray is None:
            judge = make_judge(**settings.model_dump())
        else:
            judge = make_ray_judge(settings, ray)
        stack.callback(judge.close)
        at_once = 2 * judge.capacity
        progress = stack.enter_context(
            Progress("judging", total, "kernels", done=total - len(left), at_once=at_once)
        )
        limit = asyncio.Semaphore(at_once)

        async def one(pair: Pair) -> None:
            async with limit:
                try:
                    verdict = await judge(_task_of(pair, tasks), pair.code)
                except CodingFrameworkError as e:
                    statuses.add(status_of(e))
                    line = json.dumps({"id": pair.id, "error": str(e)})
                else:
                    fields = json.loads(verdict.model_dump_json())
                    line = json.dumps({"id": pair.id, **fields})
            if sink is not None:
                sink.write_line(line)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            progress.advance()

        async with asyncio.TaskGroup() as group:
            for pair in left:
                group.create_task(one(pair))
    return max(statuses)


def _lock_of(output: Path) -> Path:
    """It lies beside the output, hidden, and stays there: only a living process holds it."""
    file = output.resolve()
    return file.with_name(f".{file.name}.lock")


def _in_use(output: Path, process: str) -> str:
    return (
        f"another judge-many (process {process}) writes to {output}: wait for it, or choose "
        "another --output"
    )


def _tasks(pairs: Sequence[Pair]) -> dict[str, Task | UsageError]:
    """What each name stands for: a task, or why it is none."""
    from coding_framework.data.registry import find_task

    found: dict[str, Task | UsageError] = {}
    for name in dict.fromkeys(pair.task for pair in pairs if not pair.wrong):
        try:
            found[name] = find_task(name)
        except UsageError as e:
            found[name] = e
    return found


def _task_of(pair: Pair, tasks: Mapping[str, Task | UsageError]) -> Task:
    """Raises UsageError where the line cannot be used."""
    if pair.wrong:
        raise UsageError(pair.wrong)
    found = tasks[pair.task]
    if isinstance(found, UsageError):
        raise UsageError(str(found))
    return found


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


def read_pairs(path: Path) -> list[Pair]:
    """The lines of a `judge-many` file; kernels' paths are relative to the file. Raises UsageError
    for a file that cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as e:
        raise UsageError(f"the pairs file {path} cannot be read ({e.strerror})") from e
    if lines and not any(line.lstrip().startswith(b"{") for line in lines):
        raise UsageError(
            f'{path} holds no line of JSON: give lines of {{"id", "task", "kernel"}}, as '
            "examples/pairs.jsonl"
        )
    pairs: dict[str, Pair] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        pair = _pair(path, number, line)
        if pair.id in pairs:
            what = f"{path}, line {number}: the id {pair.id!r} is there twice: make the ids unique"
            pair = Pair(f"line {number}", wrong=what)
        pairs[pair.id] = pair
    return list(pairs.values())


def _pair(path: Path, number: int, line: bytes) -> Pair:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as e:
        return Pair(f"line {number}", wrong=f"{path}, line {number}: not JSON ({e})")
    fields = given if isinstance(given, dict) else {}
    name = str(fields.get("id", f"line {number}"))
    texts = [fields.get(key) for key in ("task", "kernel", "code") if key in fields]
    keys = set(fields)
    if (
        not {"id", "task"} < keys
        or len(keys & {"kernel", "code"}) != 1
        or not all(isinstance(text, str) for text in texts)
    ):
        return Pair(
            name,
            wrong=f'{path}, line {number}: give an object with "id", "task" and either "kernel" (a '
            'file) or "code" (a source)',
        )
    task = fields["task"]
    if task.endswith((".json", ".yaml", ".yml", ".py")):
        task = str(path.parent / task)
    try:
        code = fields.get("code")
        if code is None and "\n" in fields["kernel"]:
            raise UsageError('"kernel" names a file: give a source as "code"')
        if code is None:
            code = read_kernel(str(path.parent / fields["kernel"]))
    except UsageError as e:
        return Pair(name, wrong=f"{path}, line {number}: {e}")
    return Pair(name, task, code)
