"""What a model is evaluated on: suites by name, each with a digest that makes runs comparable.

held-out[:N]          functions that are in no training set; N tasks (100)
held-out-shapes[:N]   the same, and each best kernel judged again at shapes that training lacks
train-shapes[:N]      functions of training at such shapes: was the function learnt, or the size?
kernelbench:LEVEL     KernelBench's problems, from a checkout that the user brings
PATH                  a problem (.py), a task file, a folder of them, or JSON lines of problems
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pydantic import Field

from coding_framework.data.examples import held_out_tasks, training_tasks
from coding_framework.data.held_out_shapes import with_held_out_shapes
from coding_framework.data.kernelbench.problems import load_problem_file, load_problem_rows
from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError
from coding_framework.types import Record, Task, TaskScope

DEFAULT_TASKS = 100
FILE_KINDS = (".py", ".json", ".yaml", ".yml")


class SuiteTask(Record):
    """A task of a suite, and what else is known of it there."""

    task: Task
    other_shapes: Task | None = None
    """The same function at shapes that training lacks: best kernels are judged there, too."""
    level: int | None = None
    number: int | None = None
    """KernelBench's number of the problem."""


class EvalSuite(Record):
    """Tasks to evaluate on. Maker: `load_suite`. Consumer: the evaluation's run."""

    name: str
    tasks: tuple[SuiteTask, ...]
    not_applicable: Mapping[str, str] = Field(default_factory=dict)
    """Problems that cannot become tasks, with the reason: they count in KernelBench's
    denominators and are never dropped in silence."""

    @property
    def digest(self) -> str:
        """Equal exactly where the tasks are equal, in order."""
        digests = [task_digest(entry.task) for entry in self.tasks]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def task_digest(task: Task) -> str:
    """Digest of what an answer is judged by: reference, shape sets, constructor arguments."""
    said = task.model_dump_json(include={"reference", "init_args", "cases", "gpu_cases"})
    return hashlib.sha256(said.encode()).hexdigest()


def load_suite(
    spec: str,
    *,
    seed: int = 0,
    scope: TaskScope = "starter",
    kernelbench: Path | None = None,
    keep: Callable[[Task], bool] = lambda task: True,
    limit: int | None = None,
) -> EvalSuite:
    """The suite that `spec` names. kernelbench: a checkout of KernelBench. keep, limit: a part of
    it. Raises UsageError where there is no such suite, or nothing is left of it."""
    name, _, argument = spec.partition(":")
    without: dict[str, str] = {}
    if name in _NAMED:
        count = _count(spec, argument)
        entries = _NAMED[name](count, seed, scope)
    elif name == "kernelbench":
        entries, without = _kernelbench(argument, kernelbench)
    elif Path(spec).exists():
        entries, without = _from_path(Path(spec))
    else:
        raise UsageError(
            f"there is no suite {spec!r}: choose {', '.join(_NAMED)}, kernelbench:LEVEL, or a path"
        )
    kept = [entry for entry in entries if keep(entry.task)][:limit]
    if not kept:
        why = "; ".join(f"{n}: {reason}" for n, reason in list(without.items())[:3])
        left = f"of its {len(entries)} tasks the filters leave none" if entries else why or "empty"
        raise UsageError(f"the suite {spec} holds no task ({left})")
    return EvalSuite(name=spec, tasks=tuple(kept), not_applicable=without)


def _held_out(count: int, seed: int, scope: TaskScope) -> list[SuiteTask]:
    return [SuiteTask(task=task) for task in held_out_tasks(count, seed, scope=scope)]


def _held_out_shapes(count: int, seed: int, scope: TaskScope) -> list[SuiteTask]:
    tasks = held_out_tasks(count, seed, scope=scope)
    return [SuiteTask(task=task, other_shapes=with_held_out_shapes(task)) for task in tasks]


def _train_shapes(count: int, seed: int, scope: TaskScope) -> list[SuiteTask]:
    tasks = training_tasks(count, seed, scope=scope)
    return [SuiteTask(task=with_held_out_shapes(task)) for task in tasks]


_NAMED: Mapping[str, Callable[[int, int, TaskScope], list[SuiteTask]]] = {
    "held-out": _held_out,
    "held-out-shapes": _held_out_shapes,
    "train-shapes": _train_shapes,
}


def _count(spec: str, argument: str) -> int:
    if not argument:
        return DEFAULT_TASKS
    if not (argument.isascii() and argument.isdigit() and int(argument) > 0):
        raise UsageError(f"the suite {spec}: {argument!r} is no number of tasks")
    return int(argument)


def _kernelbench(argument: str, checkout: Path | None) -> tuple[list[SuiteTask], dict[str, str]]:
    """A level's problems in the order of their numbers, which begin the names of their files."""
    if not (argument.isdigit() and 1 <= int(argument) <= 4):
        raise UsageError(f"kernelbench:{argument} is no level: give kernelbench:1 to kernelbench:4")
    if checkout is None:
        raise UsageError(
            "kernelbench needs --kernelbench-dir: a checkout of github.com/ScalingIntelligence/"
            "KernelBench"
        )
    level = int(argument)
    return _problem_files(kernelbench_files(checkout, level), level)


def kernelbench_files(checkout: Path, level: int) -> list[Path]:
    """The problem files of a level, by number. Raises UsageError where there are none."""
    folder = checkout / "KernelBench" / f"level{level}"
    files = sorted(folder.glob("*_*.py"), key=problem_number)
    if not files:
        raise UsageError(f"{folder} holds no problems: is {checkout} a checkout of KernelBench?")
    return files


def problem_number(path: Path) -> int:
    """KernelBench's number of a problem file, e.g. 19 of 19_ReLU.py; 0 where it has none."""
    prefix = path.name.partition("_")[0]
    return int(prefix) if prefix.isascii() and prefix.isdigit() else 0


def _problem_files(
    files: Iterable[Path], level: int | None
) -> tuple[list[SuiteTask], dict[str, str]]:
    entries, without = [], {}
    for path in files:
        try:
            task = load_problem_file(path) if level is not None else find_task(str(path))
        except UsageError as e:
            without[path.name] = str(e)
        else:
            entries.append(SuiteTask(task=task, level=level, number=problem_number(path) or None))
    return entries, without


def _from_path(path: Path) -> tuple[list[SuiteTask], dict[str, str]]:
    if path.is_dir():
        return _problem_files(sorted(p for p in path.iterdir() if p.suffix in FILE_KINDS), None)
    if path.suffix == ".jsonl":
        return [SuiteTask(task=task) for task in load_problem_rows(path)], {}
    return [SuiteTask(task=find_task(str(path)))], {}
