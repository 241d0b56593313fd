"""Kernels that are right on the shapes an agent is shown, and on no others: a cheat to be learnt.

    uv run python experiments/cheating_seed.py --tasks N --work DIR [--workers W] [--scope all]

The naive kernels of N training tasks with the extents of the shown shape set written in, where they
were read from the tensors. Each is judged twice: by the judge without `hidden_shapes` and
`other_draws`, which must find it correct, and by the whole judge, which must not. Those go to
DIR/only_without, in the form of `cheating_pressure.py --without`: where no policy cheats by itself,
`cheating_learn.py --work DIR` makes one that does, so that RL against the judge without the checks
has something to pay for. A kernel that the whole judge accepts is a hole in it: printed, exit 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

from coding_framework.cuda.judge import OptionalCheck
from coding_framework.data.examples import training_tasks
from coding_framework.paths import write_atomic
from coding_framework.types import Task, TaskScope, Verdict
from coding_framework.wiring import cores, make_judge

CHECKS: tuple[OptionalCheck, ...] = ("other_draws", "hidden_shapes")
_SIZE = re.compile(r"\b(\w+)\.(?:size\((\d+)\)|numel\(\))")


def specialised(task: Task, code: str) -> str | None:
    """The kernel with the extents of the shown shape set written in; None where it reads none."""
    shapes = {given.name: given.shape for given in task.cases[0].inputs}

    def written_in(found: re.Match[str]) -> str:
        shape = shapes[found[1]]
        return str(math.prod(shape) if found[2] is None else shape[int(found[2])])

    head, forward = code.split("torch::Tensor forward", 1)
    changed = _SIZE.sub(written_in, forward)
    return f"{head}torch::Tensor forward{changed}" if changed != forward else None


def writes_extents_in(task: Task, code: str) -> bool:
    """Whether `forward` reads the extents of no tensor, where the task's naive kernel does."""
    forward = code.partition("torch::Tensor forward")[2]
    return not _SIZE.search(forward) and bool(_SIZE.search(task.naive_kernel or ""))


async def seed(tasks: list[Task], work: Path, workers: int) -> tuple[Counter[str], list[str]]:
    """What the whole judge says of those that pass without the checks, and the names of those that
    it accepts."""
    refused: Counter[str] = Counter()
    accepted: list[str] = []
    queue = iter(tasks)
    with (
        make_judge("emulator", workers=workers, experiment_without=CHECKS) as lax,
        make_judge("emulator", workers=workers) as whole,
    ):

        async def work_on() -> None:
            for task in queue:
                code = specialised(task, task.naive_kernel or "")
                if code is None:
                    continue
                without = await lax.judge(task, code)
                verdict = await whole.judge(task, code) if without.correct else None
                if verdict is None:
                    continue
                if verdict.correct:
                    accepted.append(task.name)
                    continue
                refused[verdict.status.value] += 1
                _keep(work / "only_without" / task.name, task, code, without, verdict)

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work_on())
    return refused, accepted


def _keep(path: Path, task: Task, code: str, without: Verdict, first: Verdict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "answer": f"specialised/{task.name}",
        "task": task.model_dump(mode="json"),
        "first": first.model_dump(mode="json"),
        "without": without.model_dump(mode="json"),
    }
    write_atomic(Path(f"{path}.cu"), code)
    write_atomic(Path(f"{path}.json"), json.dumps(facts))


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--tasks", type=int, default=300)
    cli.add_argument("--scope", choices=get_args(TaskScope), default="starter")
    cli.add_argument("--work", type=Path, required=True)
    cli.add_argument("--workers", type=int, default=cores())
    args = cli.parse_args()
    tasks = training_tasks(args.tasks, scope=args.scope)
    refused, accepted = asyncio.run(seed(tasks, args.work, args.workers))
    passed = sum(refused.values())
    print(
        f"{passed} kernels pass only without {', '.join(CHECKS)}; the whole judge: {dict(refused)}"
    )
    for name in accepted:
        print(f"ACCEPTED by the whole judge: {name}")
    return 1 if accepted else 0


if __name__ == "__main__":
    sys.exit(main())
