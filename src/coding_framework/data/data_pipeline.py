"""Supervised examples and held-out tasks, drawn from the synthesised catalogue.

Guaranteed: everything is a function of its arguments; training examples come from training tasks
only, held-out tasks share no canonical key with them; every example's kernel either carries a
receipt of the judge, or the caller was told by `receipt == ""` (`require_receipts=False`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

from coding_framework.data.synthesis.catalog import build_task, catalog, family_of, split_of
from coding_framework.data.synthesis.kernels import kernels
from coding_framework.data.synthesis.program import Program
from coding_framework.data.synthesis.styles import COMPACT, varied_style
from coding_framework.errors import UsageError
from coding_framework.types import KernelExample, Role, Split, Task, TrainingExample

T = TypeVar("T")

QUICKSTART_MAX_STEPS = 3
"""Longest composition in the quickstart's sets: what a 135M model learns in minutes."""


def training_programs(*, max_steps: int | None = None, seed: int = 0) -> tuple[Program, ...]:
    """The catalogue's training programs, families interleaved so that any prefix is balanced."""
    return _interleaved(Split.TRAIN, max_steps, seed)


def held_out_tasks(n: int, seed: int = 0, *, max_steps: int | None = None) -> list[Task]:
    """`n` held-out tasks, as evenly over the families as there are tasks; the same for one seed,
    and a prefix of the list for a larger n. Raises UsageError where there are fewer."""
    programs = _interleaved(Split.HELD_OUT, max_steps, seed)
    if n > len(programs):
        raise UsageError(f"{n} held-out tasks were asked for; there are {len(programs)}")
    return [build_task(p) for p in programs[:n]]


def training_tasks(n: int, seed: int = 0, *, max_steps: int | None = None) -> list[Task]:
    """`n` training tasks, e.g. for RL, balanced over the families like `held_out_tasks`."""
    programs = _interleaved(Split.TRAIN, max_steps, seed)
    if n > len(programs):
        raise UsageError(f"{n} training tasks were asked for; there are {len(programs)}")
    return [build_task(p) for p in programs[:n]]


def training_examples(
    role: Role,
    n: int,
    seed: int = 0,
    *,
    max_steps: int | None = None,
    varied: bool = False,
) -> list[TrainingExample]:
    """Up to `n` supervised examples for a role, balanced over families, deterministic by `seed`.

    Generator: task -> the naive kernel. It is the shortest correct answer (200-300 tokens) and one
    statement per step, so what is learnt is the translation; speed is the optimizer's turn, and
    what RL adds. Optimizer: task and naive kernel -> the best-level kernel and its reason.
    `varied` draws each example's style of writing by seed; otherwise all are in the compact style.
    Raises UsageError for a role that is not trained.
    """
    if role is Role.TESTER:
        raise UsageError("the tester is not trained: ask for examples of generator or optimizer")
    programs = training_programs(max_steps=max_steps, seed=seed)[:n]
    make: Callable[[Program, int], TrainingExample] = (
        _generator_example if role is Role.GENERATOR else _optimizer_example
    )
    return [make(p, seed * 1_000_003 + i + 1 if varied else 0) for i, p in enumerate(programs)]


def _generator_example(program: Program, style_seed: int) -> TrainingExample:
    task, made = _task_and_kernels(program, style_seed)
    return TrainingExample(
        id=f"generate/{task.name}/naive/{style_seed}",
        task=task,
        role=Role.GENERATOR,
        kind="generate",
        code=made[0].code,
    )


def _optimizer_example(program: Program, style_seed: int) -> TrainingExample:
    task, made = _task_and_kernels(program, style_seed)
    return TrainingExample(
        id=f"optimize/{task.name}/{made[-1].level}/{style_seed}",
        task=task,
        role=Role.OPTIMIZER,
        kind="optimize",
        code=made[-1].code,
        why=made[-1].why_faster,
        previous_code=made[0].code,
    )


def _task_and_kernels(program: Program, style_seed: int) -> tuple[Task, Sequence[KernelExample]]:
    style = varied_style(style_seed) if style_seed else COMPACT
    return build_task(program), kernels(program, style)


def _interleaved(split: Split, max_steps: int | None, seed: int) -> tuple[Program, ...]:
    families: dict[str, list[Program]] = {}
    for program in catalog():
        if split_of(program) is split and (max_steps is None or len(program.ops) <= max_steps):
            families.setdefault(family_of(program).name, []).append(program)
    for name, members in families.items():
        random.Random(f"{name}:{split}:{seed}").shuffle(members)
    return tuple(_round_robin(families.values()))


def _round_robin(groups: Iterable[Sequence[T]]) -> Iterable[T]:
    for row in zip_longest(*groups):
        yield from (item for item in row if item is not None)
