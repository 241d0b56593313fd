"""What a model is evaluated on: suites by name, each with a digest that makes runs comparable.

held-out[:N]          functions that are in no training set; N tasks (100)
held-out-shapes[:N]   the same, and each best kernel judged again at shapes that training lacks
train-shapes[:N]      functions of training at such shapes: was the function learnt, or the size?
modules[:N]           module tasks that are in no training set
modules-other-sizes[:N]
                      the same at sizes that no list has: was the function learnt, or the size?
validation[:N]        module tasks by which a policy or a temperature is chosen: neither trained on
                      nor held out
kernelbench:LEVEL     KernelBench's problems, from a checkout that the user brings; with
                      :representative behind the level its published subset
PATH                  a problem (.py), a task file, a folder of them, or JSON lines of problems
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from coding_framework.cuda.expected.rules import Rules
from coding_framework.data.examples import held_out_tasks, training_tasks
from coding_framework.data.held_out_shapes import with_held_out_shapes
from coding_framework.data.modules.catalog import module_drafts
from coding_framework.data.modules.pool import validation_modules
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.modules.sizes import at_other_sizes
from coding_framework.data.modules.tasks import module_task
from coding_framework.errors import UsageError
from coding_framework.evaluation.problem_loading import ProblemSource, load_problems
from coding_framework.registry.digests import task_digest
from coding_framework.store.lines import read_lines
from coding_framework.types import Record, Task, TaskScope

DEFAULT_TASKS = 100
FILE_KINDS = (".py", ".json", ".yaml", ".yml")


class SuiteTask(Record):
    """A task of a suite, and what else is known of it there."""

    task: Task
    other_shapes: Task | None = None
    """The same function at shapes that training lacks: best kernels are judged there, too."""
    level: int | None = None
    """KernelBench's, or of a module task the one that it is like."""
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


def load_suite(
    spec: str,
    *,
    seed: int = 0,
    scope: TaskScope = "starter",
    kernelbench: Path | None = None,
    keep: Mapping[str, Callable[[Task], bool]] = {},
    limit: int | None = None,
) -> EvalSuite:
    """The suite that `spec` names. kernelbench: a checkout of KernelBench. keep, limit: a part of
    it; a filter is called as the user knows it. Raises UsageError where there is no such suite, or
    nothing is left of it."""
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
    if not entries:
        why = "; ".join(f"{n}: {reason}" for n, reason in list(without.items())[:3])
        raise UsageError(f"the suite {spec} holds no task ({why or 'it is empty'})")
    for flag, wanted in keep.items():
        left = [entry for entry in entries if wanted(entry.task)]
        if not left:
            raise UsageError(f"{flag} leaves none of the {len(entries)} tasks of the suite {spec}")
        entries = left
    return EvalSuite(name=spec, tasks=tuple(entries[:limit]), not_applicable=without)


def under_rules(suite: EvalSuite, rules: Rules) -> EvalSuite:
    """The suite as published rules have it: in their precision, without the problems that they
    leave out. Raises UsageError where it has none of their problems."""
    if not rules.scales:
        return suite
    if any(entry.level is None or entry.number is None for entry in suite.tasks):
        raise UsageError(
            f"the rules {rules.name} are of KernelBench's problems, and the suite {suite.name} has "
            "others: take kernelbench:LEVEL, or leave --rules out"
        )
    kept = [e for e in suite.tasks if e.number not in rules.left_out.get(e.level or 0, ())]
    if not kept:
        raise UsageError(f"the rules {rules.name} leave out all problems of {suite.name}")
    if rules.precision == "tf32":
        from coding_framework.reference_model import in_tf32  # PyTorch

        kept = [
            e.model_copy(
                update={"task": e.task.model_copy(update={"reference": in_tf32(e.task.reference)})}
            )
            for e in kept
        ]
    return suite.model_copy(update={"tasks": tuple(kept)})


def _of_modules(drafts: Iterable[ModuleDraft]) -> list[SuiteTask]:
    return [SuiteTask(task=module_task(draft), level=draft.level) for draft in drafts]


_NAMED: Mapping[str, Callable[[int, int, TaskScope], list[SuiteTask]]] = {
    "held-out": lambda count, seed, scope: [
        SuiteTask(task=task) for task in held_out_tasks(count, seed, scope=scope)
    ],
    "held-out-shapes": lambda count, seed, scope: [
        SuiteTask(task=task, other_shapes=with_held_out_shapes(task))
        for task in held_out_tasks(count, seed, scope=scope)
    ],
    "train-shapes": lambda count, seed, scope: [
        SuiteTask(task=with_held_out_shapes(task))
        for task in training_tasks(count, seed, scope=scope)
    ],
    "modules": lambda count, seed, scope: _of_modules(module_drafts("held_out", count=count)),
    "modules-other-sizes": lambda count, seed, scope: _of_modules(
        map(at_other_sizes, module_drafts("held_out", count=count))
    ),
    "validation": lambda count, seed, scope: [
        SuiteTask(task=task) for task in validation_modules(count)
    ],
}
"""What a number of tasks, a seed and a scope give; modules are drawn by their catalogue alone."""


def _count(spec: str, argument: str) -> int:
    if not argument:
        return DEFAULT_TASKS
    if not (argument.isascii() and argument.isdigit() and int(argument) > 0):
        raise UsageError(f"the suite {spec}: {argument!r} is no number of tasks")
    return int(argument)


REPRESENTATIVE: Mapping[int, tuple[int, ...]] = {
    1: (1, 3, 6, 18, 23, 26, 33, 36, 40, 42, 48, 54, 57, 65, 77, 82, 86, 87),
    2: (1, 2, 8, 18, 23, 28, 33, 43),
    3: (1, 5, 8, 11, 20, 21, 33, 38, 43),
}
"""Level -> numbers of KernelBench's published subset (commit 423217d)."""


def _kernelbench(argument: str, checkout: Path | None) -> tuple[list[SuiteTask], dict[str, str]]:
    """A level's problems in the order of their numbers, which begin the names of their files."""
    number, _, part = argument.partition(":")
    if number not in ("1", "2", "3", "4") or part not in ("", "representative"):
        raise UsageError(
            f"kernelbench:{argument} is no level: give kernelbench:1 to kernelbench:4, or "
            "kernelbench:1:representative"
        )
    if checkout is None:
        raise UsageError(
            "kernelbench needs --kernelbench-dir: a checkout of github.com/ScalingIntelligence/"
            "KernelBench"
        )
    level = int(number)
    files = kernelbench_files(checkout, level)
    if part:
        if level not in REPRESENTATIVE:
            raise UsageError(f"KernelBench has no representative subset of level {level}")
        files = [path for path in files if problem_number(path) in REPRESENTATIVE[level]]
    return _problem_files(files, level)


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
    files: Sequence[Path], level: int | None
) -> tuple[list[SuiteTask], dict[str, str]]:
    asked = [ProblemSource(path=str(path.absolute()), checked=level is None) for path in files]
    return _sorted_out(zip((path.name for path in files), load_problems(asked), strict=True), level)


def _sorted_out(
    found: Iterable[tuple[str, Task | str]], level: int | None = None
) -> tuple[list[SuiteTask], dict[str, str]]:
    """Tasks of problems, and why the others are none."""
    entries, without = [], {}
    for name, task in found:
        if isinstance(task, str):
            without[name] = task
        else:
            number = problem_number(Path(name)) or None
            entries.append(SuiteTask(task=task, level=level, number=number))
    return entries, without


def _from_path(path: Path) -> tuple[list[SuiteTask], dict[str, str]]:
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in FILE_KINDS)
        return _problem_files(files, None)
    if path.suffix == ".jsonl":
        rows = [ProblemSource.of_line(line) for line in read_lines(path)]
        levels = {row.level for row in rows}
        found = zip((row.name for row in rows), load_problems(rows), strict=True)
        return _sorted_out(found, levels.pop() if len(levels) == 1 else None)
    entries, without = _problem_files([path], None)
    if without:
        raise UsageError(without[path.name])
    return entries, without
