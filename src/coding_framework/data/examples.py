"""Draws supervised examples, training tasks and held-out tasks from the synthesised catalogue.

`example_store` keeps examples in a file, `data_pipeline` streams them in batches.

Guaranteed: everything is a function of its arguments and of the receipts; training examples come
from training tasks only, held-out tasks share no canonical key with them; a kernel without a
`correct` receipt of the judge is never an answer to learn from, nor the baseline of a held-out
task. Kernels come from the receipts, which hold what was judged. Not guaranteed: that every task of
the catalogue has its receipts (`pairs` names what is to be judged, `receipts.build_receipts` judges
it).
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TypedDict, TypeVar, Unpack

from coding_framework.data.faults import BrokenKernel
from coding_framework.data.kernels import kernels_of
from coding_framework.data.synthesis.catalog import (
    all_functions,
    build_task,
    catalog,
    family_of,
    split_of,
)
from coding_framework.data.synthesis.function import Function
from coding_framework.data.synthesis.measured import measured_speeds
from coding_framework.data.synthesis.receipts import (
    KernelReceipt,
    Key,
    all_receipts,
    by_task,
    packaged_receipts,
    task_digest,
    with_naive,
)
from coding_framework.errors import UsageError
from coding_framework.types import (
    Candidate,
    GeneratorTarget,
    KernelExample,
    Role,
    Split,
    Task,
    TaskScope,
    TrainingExample,
)

T = TypeVar("T")
Receipts = Mapping[Key, KernelReceipt]
Judged = Mapping[str, Sequence[KernelReceipt]] | None
"""`by_task` of receipts; None: kernels are taken as they are written now."""

UNVERIFIED: Receipts = {}
"""Passed as `receipts`: kernels as they are written now, for work without a judge."""

_NO_SLOWER = 1.02
"""A kernel is dropped as an answer above this many times the naive one's time. Elementwise kernels
are level on the emulator's small sizes, where a launch is most of the time; the time model is not
good for 2%."""

KERNELBENCH_HAS = frozenset({"relu", "sigmoid", "tanh", "softmax"})
"""Functions of the catalogue that are problems of KernelBench: no model learns their answers."""

REPAIR_EVERY = 3
"""Of the training tasks, one in this many has a broken kernel and gives the optimizer a repair."""


class Selection(TypedDict, total=False):
    """Which functions are drawn from, and by whose verdicts."""

    max_steps: int | None
    """Most operations of a task; None: any."""
    max_tier: int | None
    """Hardest tier of its family (0: each element for itself); None: any."""
    receipts: Receipts | None
    """The judge's verdicts; None: those that ship with the package, in scope "all" those that this
    machine judged too. `UNVERIFIED`: kernels as they are written now, half a second a task."""
    scope: TaskScope


def training_examples(
    role: Role,
    n: int,
    seed: int = 0,
    *,
    target: GeneratorTarget = "naive",
    **which: Unpack[Selection],
) -> list[TrainingExample]:
    """Up to `n` supervised examples for a role, balanced over families, deterministic by `seed`; of
    functions without the verdicts that they need there are none.

    Generator: task -> the naive kernel, or with `target` "best" the fastest, of the same tasks. The
    naive one is the shortest correct answer (200-300 tokens) and one statement per step, so what is
    learnt is the translation; speed is the optimizer's turn, and what RL adds. Optimizer: naive
    kernel and its verdict -> that fastest kernel and its reason; or, of one task in three, a kernel
    with a typical fault and its verdict -> the kernel without it.

    Raises UsageError for the tester, which is not trained.
    """
    return _examples(Split.TRAIN, role, n, seed, target, **which)


def held_out_examples(
    role: Role,
    n: int,
    seed: int = 0,
    *,
    target: GeneratorTarget = "naive",
    **which: Unpack[Selection],
) -> list[TrainingExample]:
    """Up to `n` examples of held-out tasks, never to be learnt from: how well a model foresees
    what it has not seen. Else as `training_examples`; the fewest are those of the optimizer."""
    return _examples(Split.HELD_OUT, role, n, seed, target, **which)


def training_tasks(
    n: int | None, seed: int = 0, *, min_steps: int = 0, **which: Unpack[Selection]
) -> list[Task]:
    """`n` training tasks, e.g. for RL, of compositions at least `min_steps` long; else as
    `held_out_tasks`."""
    return _tasks(Split.TRAIN, n, seed, min_steps, **which)


def held_out_tasks(n: int | None, seed: int = 0, **which: Unpack[Selection]) -> list[Task]:
    """`n` held-out tasks, as evenly over the families as there are tasks; the same for one seed,
    and a prefix of the list for a larger n; None: all. Raises UsageError where there are fewer."""
    return _tasks(Split.HELD_OUT, n, seed, 0, **which)


def is_for_repair(function: Function) -> bool:
    """Whether a training task gives a broken kernel."""
    return zlib.crc32(function.name.encode()) % REPAIR_EVERY == 0


def _examples(
    split: Split,
    role: Role,
    n: int,
    seed: int,
    target: GeneratorTarget,
    **which: Unpack[Selection],
) -> list[TrainingExample]:
    if role is Role.TESTER:
        raise UsageError("the tester is not trained: ask for examples of generator or optimizer")
    families = _material(split, seed, 0, **which)
    drawn = round_robin(
        filter(None, (one.example(role, target) for one in members)) for members in families
    )
    return list(islice(drawn, n))


def _tasks(
    split: Split, n: int | None, seed: int, min_steps: int, **which: Unpack[Selection]
) -> list[Task]:
    families = _material(split, seed, min_steps, **which)
    drawn = round_robin((one.task for one in of if one.has_baseline) for of in families)
    tasks = list(islice(drawn, n))
    if n is not None and len(tasks) < n:
        raise UsageError(
            f"{n} {split.value} tasks were asked for; {len(tasks)} have a judged kernel: ask for "
            "fewer, or judge more with `cuda-rl tasks build`"
        )
    return tasks


def _material(
    split: Split,
    seed: int,
    min_steps: int,
    max_steps: int | None = None,
    max_tier: int | None = None,
    receipts: Receipts | None = None,
    scope: TaskScope = "starter",
) -> Iterator[Iterator[_Material]]:
    """What each function of each family has. The starter set uses only the receipts in the package,
    so it is the same on every machine."""
    if receipts is None:
        receipts = packaged_receipts() if scope == "starter" else all_receipts()
    judged = None if receipts is UNVERIFIED else by_task(receipts)
    for family in functions_of(split, seed, max_steps, max_tier, scope):
        yield (_Material(f, judged) for f in family if len(f.ops) >= min_steps)


def generating(task: Task, kernel: KernelExample, receipt: KernelReceipt | None) -> TrainingExample:
    """Task -> kernel. A receipt of None: the kernel is trusted as synthesised."""
    return TrainingExample(
        id=f"generate/{task.name}/{kernel.level}/{_short_digest(kernel.code)}",
        task=task,
        role=Role.GENERATOR,
        kind="generate",
        code=kernel.code,
        why=kernel.why_faster,
        receipt=_digest(receipt),
    )


def optimizing(
    task: Task,
    kernel: KernelExample,
    before: KernelReceipt | None,
    better: KernelExample,
    after: KernelReceipt | None,
) -> TrainingExample:
    """Kernel and its verdict -> better kernel and why."""
    return TrainingExample(
        id=f"optimize/{task.name}/{better.level}/{_short_digest(kernel.code + better.code)}",
        task=task,
        role=Role.OPTIMIZER,
        kind="optimize",
        code=better.code,
        why=better.why_faster,
        previous_code=kernel.code,
        previous_verdict=before.verdict if before is not None else None,
        receipt=_digest(after),
    )


def repairing(
    task: Task,
    broken: BrokenKernel,
    before: KernelReceipt | None,
    kernel: KernelExample,
    after: KernelReceipt | None,
) -> TrainingExample:
    """Broken kernel and its verdict -> the kernel without the fault."""
    return TrainingExample(
        id=f"repair/{task.name}/{broken.fault}/{_short_digest(broken.code)}",
        task=task,
        role=Role.OPTIMIZER,
        kind="repair",
        code=kernel.code,
        why=broken.why_fixed,
        previous_code=broken.code,
        previous_verdict=before.verdict if before is not None else None,
        receipt=_digest(after),
    )


def _digest(receipt: KernelReceipt | None) -> str:
    return receipt.verdict_digest if receipt is not None else ""


class _Material:
    """A function's task, kernels and receipts, and the examples that they make."""

    def __init__(self, function: Function, judged: Judged) -> None:
        self.function = function
        self._trusting = judged is None
        task = build_task(function)
        self._receipts = () if judged is None else judged.get(task_digest(task), ())
        self.task = with_naive(task, self._receipts)

    @property
    def has_baseline(self) -> bool:
        """Whether there is a naive kernel, to which others are compared, and it is right."""
        return self._trusting or self.task.naive_kernel is not None

    @cached_property
    def _kernels(self) -> list[tuple[KernelExample, KernelReceipt | None]]:
        """Those that may be shown, the naive one first; none without a baseline."""
        if self._trusting:
            return [(kernel, None) for kernel in kernels_of(self.task)]
        right = [(r.kernel, r) for r in self._receipts if r.broken is None and r.verdict.correct]
        return [*right] if self.has_baseline else []

    def example(self, role: Role, target: GeneratorTarget) -> TrainingExample | None:
        """What the function teaches the role; None where its kernels lack the receipts."""
        if not self._kernels:
            return None
        if role is Role.GENERATOR:  # its prompt asks for no reason, so the kernel is the answer
            kernel, receipt = self._kernels[self._fastest(0) if target == "best" else 0]
            return generating(self.task, kernel.model_copy(update={"why_faster": ""}), receipt)
        return (self._repair() if is_for_repair(self.function) else None) or self._optimize()

    @property
    def _speeds(self) -> Mapping[str, float]:
        """Of the levels that a GPU timed at real sizes in this family, over the naive one."""
        return measured_speeds(family_of(self.function).name)

    def _fastest(self, start: int) -> int:
        """Of the kernels from `start` on the one whose level a GPU found the fastest in the family,
        by the median at real sizes. A level that was not measured is compared with it by the
        receipts, of which the emulator's are of small sizes: where they are level, the measured one
        stays; as synthesised, the last."""
        speeds = {n: self._speeds.get(k.level) for n, (k, _) in enumerate(self._kernels)}
        left = [n for n, speed in speeds.items() if speed is None and n >= start]
        measured = [n for n, speed in speeds.items() if speed is not None and n >= start]
        if measured:
            left.insert(0, max(measured, key=lambda n: speeds[n] or 0.0))
        return (
            left[-1] if self._trusting else min(left, key=lambda n: kernel_ms(self._kernels[n][1]))
        )

    def _optimize(self) -> TrainingExample | None:
        """None where every other kernel is slower than the naive one. Where only receipts tell, on
        sizes where a launch is all that takes time (elementwise, on the emulator) the two are
        level, and the better kernel is still what is to be learnt."""
        if len(self._kernels) < 2:
            return None
        (naive, before), (best, after) = self._kernels[0], self._kernels[self._fastest(1)]
        if best.level in self._speeds:
            slower = self._speeds[best.level] < 1.0
        else:
            slower = not self._trusting and kernel_ms(after) > _NO_SLOWER * kernel_ms(before)
        return None if slower else optimizing(self.task, naive, before, best, after)

    def _repair(self) -> TrainingExample | None:
        """None where the judge did not notice the fault."""
        before = next((r for r in self._receipts if r.broken is not None), None)
        if before is None or before.broken is None or before.verdict.correct:
            return None
        return repairing(self.task, before.broken, before, *self._kernels[0])


def kernel_ms(receipt: KernelReceipt | None) -> float:
    """Time of a judged kernel; infinite where none was told."""
    timing = receipt.verdict.timing if receipt is not None else None
    return timing.kernel_ms if timing is not None else float("inf")


def _short_digest(code: str) -> str:
    return Candidate(code=code).sha256[:8]


def functions_of(
    split: Split,
    seed: int,
    max_steps: int | None,
    max_tier: int | None = None,
    scope: TaskScope = "starter",
) -> list[list[Function]]:
    """The split's functions by family, each family shuffled by seed."""
    families: dict[str, list[Function]] = {}
    for function in catalog() if scope == "starter" else all_functions():
        family = family_of(function)
        short = max_steps is None or len(function.ops) <= max_steps
        easy = max_tier is None or family.tier <= max_tier
        seen_outside = split is Split.TRAIN and function.name in KERNELBENCH_HAS
        if split_of(function) is split and short and easy and not seen_outside:
            families.setdefault(family.name, []).append(function)
    for name, members in families.items():
        random.Random(f"{name}:{split}:{seed}").shuffle(members)
    return list(families.values())


def in_turn(found: Iterable[T], group: Callable[[T], str], count: int | None = None) -> list[T]:
    """The first `count`, one of each group in turn; None: all."""
    groups: dict[str, list[T]] = {}
    for one in found:
        groups.setdefault(group(one), []).append(one)
    return list(islice(round_robin(groups.values()), count))


def round_robin(groups: Iterable[Iterable[T]]) -> Iterator[T]:
    """One of each group in turn, so that any prefix is balanced; drawn only as far as asked for."""
    left = [iter(group) for group in groups]
    while left:
        again = []
        for members in left:
            for item in islice(members, 1):
                yield item
                again.append(members)
        left = again
