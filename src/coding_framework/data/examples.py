"""Draws supervised examples, training tasks and held-out tasks from the synthesised catalogue.

`example_store` keeps examples in a file, `data_pipeline` streams them in batches.

Guaranteed: everything is a function of its arguments and of the receipts; training examples come
from training tasks only, held-out tasks share no canonical key with them; a kernel without a
`correct` receipt of the judge is never an answer to learn from, nor the baseline of a held-out
task. Not guaranteed: that every task of the catalogue has its receipts (`jobs_for` names what is
to be judged, `receipts.build_receipts` judges it).
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TypeVar

from coding_framework.data.synthesis.catalog import (
    Function,
    all_functions,
    build_task,
    catalog,
    family_of,
    parse_function,
    split_of,
)
from coding_framework.data.synthesis.faults import BrokenKernel, break_kernel
from coding_framework.data.synthesis.kernels import kernels
from coding_framework.data.synthesis.measured import measured_speeds
from coding_framework.data.synthesis.receipts import (
    Job,
    KernelReceipt,
    Key,
    all_receipts,
    packaged_receipts,
)
from coding_framework.data.synthesis.styles import COMPACT, Style, varied_style
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

UNVERIFIED: Receipts = {}
"""Passed as `receipts`: kernels as synthesised, for work without a judge."""

_NO_SLOWER = 1.02
"""A kernel is dropped as an answer above this many times the naive one's time. Elementwise kernels
are level on the emulator's small sizes, where a launch is most of the time; the time model is not
good for 2%."""

KERNELBENCH_HAS = frozenset({"relu", "sigmoid", "tanh", "softmax"})
"""Functions of the catalogue that are problems of KernelBench: no model learns their answers."""

REPAIR_EVERY = 3
"""Of the training tasks, one in this many has a broken kernel and gives the optimizer a repair."""


def training_examples(
    role: Role,
    n: int,
    seed: int = 0,
    *,
    max_steps: int | None = None,
    max_tier: int | None = None,
    receipts: Receipts | None = None,
    styles: int = 1,
    scope: TaskScope = "starter",
    target: GeneratorTarget = "naive",
) -> list[TrainingExample]:
    """Up to `n` supervised examples for a role, balanced over families, deterministic by `seed`.

    Generator: task -> the naive kernel, or with `target` "best" the fastest, of the same tasks. The
    naive one is the shortest correct answer (200-300 tokens) and one statement per step, so what is
    learnt is the translation; speed is the optimizer's turn, and what RL adds. Optimizer: naive
    kernel and its verdict -> that fastest kernel and its reason; or, of one task in three, a kernel
    with a typical fault and its verdict -> the kernel without it.

    max_steps, max_tier: most operations of a task, and the hardest tier of its family (0: each
    element for itself); None: any.
    receipts: the judge's verdicts, by default those that ship with the package (scope "all": and
    those that this machine judged); an example whose kernels have none is left out. `UNVERIFIED`
    takes kernels as synthesised, their receipt "".
    styles: how many ways of writing each kernel to draw from; 1 is the compact style alone, the
    only one that the shipped receipts cover.
    Raises UsageError for the tester, which is not trained.
    """
    return _examples(
        Split.TRAIN, role, n, seed, max_steps, max_tier, receipts, styles, scope, target
    )


def held_out_examples(
    role: Role,
    n: int,
    seed: int = 0,
    *,
    max_steps: int | None = None,
    max_tier: int | None = None,
    receipts: Receipts | None = None,
    scope: TaskScope = "starter",
    target: GeneratorTarget = "naive",
) -> list[TrainingExample]:
    """Up to `n` examples of held-out tasks, never to be learnt from: how well a model foresees
    what it has not seen. Else as `training_examples`; the fewest are those of the optimizer."""
    return _examples(Split.HELD_OUT, role, n, seed, max_steps, max_tier, receipts, 1, scope, target)


def training_tasks(
    n: int | None,
    seed: int = 0,
    *,
    min_steps: int = 0,
    max_steps: int | None = None,
    max_tier: int | None = None,
    receipts: Receipts | None = None,
    scope: TaskScope = "starter",
) -> list[Task]:
    """`n` training tasks, e.g. for RL, of compositions at least `min_steps` long; else as
    `held_out_tasks`."""
    return _tasks(Split.TRAIN, n, seed, max_steps, max_tier, receipts, scope, min_steps)


def held_out_tasks(
    n: int | None,
    seed: int = 0,
    *,
    max_steps: int | None = None,
    max_tier: int | None = None,
    receipts: Receipts | None = None,
    scope: TaskScope = "starter",
) -> list[Task]:
    """`n` held-out tasks, as evenly over the families as there are tasks; the same for one seed,
    and a prefix of the list for a larger n; None: all. Raises UsageError where there are fewer."""
    return _tasks(Split.HELD_OUT, n, seed, max_steps, max_tier, receipts, scope)


def starter_examples(
    role: Role, *, max_steps: int | None = None, target: GeneratorTarget = "naive"
) -> list[TrainingExample]:
    """All examples of a role whose receipts ship with the package: those of `training_examples`
    without its order. They are found by the receipts' names, so the catalogue is not drawn."""
    known = packaged_receipts()
    names = sorted({receipt.task for receipt in known.values()} - KERNELBENCH_HAS)
    functions = [f for f in map(parse_function, names) if f is not None]
    drawn = (
        _Material(function, COMPACT, known).example(role, target)
        for function in functions
        if split_of(function) is Split.TRAIN
        and (max_steps is None or len(function.ops) <= max_steps)
    )
    return [example for example in drawn if example is not None]


def jobs_for(
    split: Split,
    n: int,
    *,
    max_steps: int | None = None,
    min_tier: int = 0,
    max_tier: int | None = None,
    naive_only: bool = False,
    style: Style = COMPACT,
    scope: TaskScope = "starter",
) -> list[Job]:
    """What is to be judged for the first `n` tasks of a split, in the order of `training_tasks`
    with seed 0: all kernels, and of one training task in three a broken one. naive_only: what
    baselines and examples for the generator need."""
    jobs = []
    families = _families(split, 0, max_steps, max_tier, scope)
    hard = (members for members in families if family_of(members[0]).tier >= min_tier)
    for function in islice(round_robin(hard), n):
        material = _Material(function, style, {})
        made = material.kernels[:1] if naive_only else material.kernels
        jobs += [Job(material.task, kernel.level, kernel.code) for kernel in made]
        repairs = split is Split.TRAIN and not naive_only and material.is_for_repair
        broken = material.broken() if repairs else None
        if broken is not None:
            jobs.append(Job(material.task, f"broken:{broken.fault}", broken.code))
    return jobs


def _examples(
    split: Split,
    role: Role,
    n: int,
    seed: int,
    max_steps: int | None,
    max_tier: int | None,
    receipts: Receipts | None,
    styles: int,
    scope: TaskScope,
    target: GeneratorTarget,
) -> list[TrainingExample]:
    if role is Role.TESTER:
        raise UsageError("the tester is not trained: ask for examples of generator or optimizer")
    known = _receipts_for(scope) if receipts is None else receipts
    families = _families(split, seed, max_steps, max_tier, scope)
    drawn = (
        example
        for style in _styles(styles, seed)
        for example in round_robin(
            filter(None, (_Material(p, style, known).example(role, target) for p in members))
            for members in families
        )
    )
    return list(islice(drawn, n))


def _tasks(
    split: Split,
    n: int | None,
    seed: int,
    max_steps: int | None,
    max_tier: int | None,
    receipts: Receipts | None,
    scope: TaskScope,
    min_steps: int = 0,
) -> list[Task]:
    known = _receipts_for(scope) if receipts is None else receipts
    drawn = round_robin(
        (m.task for m in (_Material(p, COMPACT, known) for p in members) if m.has_baseline)
        for members in (
            [p for p in family if len(p.ops) >= min_steps]
            for family in _families(split, seed, max_steps, max_tier, scope)
        )
    )
    tasks = list(islice(drawn, n))
    if n is not None and len(tasks) < n:
        raise UsageError(
            f"{n} {split.value} tasks were asked for; {len(tasks)} have a judged kernel: ask for "
            "fewer, or judge more with `cuda-rl tasks build`"
        )
    return tasks


def _receipts_for(scope: TaskScope) -> Receipts:
    """The starter set uses only the receipts in the package, so it is the same on every machine."""
    return packaged_receipts() if scope == "starter" else all_receipts()


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
    before: KernelReceipt,
    kernel: KernelExample,
    after: KernelReceipt,
    number: str,
) -> TrainingExample:
    """Broken kernel and its verdict -> the kernel without the fault. `number` ends its id."""
    return TrainingExample(
        id=f"repair/{task.name}/{broken.fault}/{number}",
        task=task,
        role=Role.OPTIMIZER,
        kind="repair",
        code=kernel.code,
        why=broken.why_fixed,
        previous_code=broken.code,
        previous_verdict=before.verdict,
        receipt=after.verdict_digest,
    )


def _digest(receipt: KernelReceipt | None) -> str:
    return receipt.verdict_digest if receipt is not None else ""


@dataclass(frozen=True, slots=True)
class _Material:
    """A function's task, kernels and receipts, and the examples that they make."""

    function: Function
    style: Style
    receipts: Receipts

    @property
    def trusting(self) -> bool:
        """Whether kernels are taken as synthesised, without a verdict."""
        return self.receipts is UNVERIFIED

    @property
    def task(self) -> Task:
        return build_task(self.function)

    @property
    def kernels(self) -> tuple[KernelExample, ...]:
        return kernels(self.function, self.style)

    def receipt(self, code: str) -> KernelReceipt | None:
        return self.receipts.get(Job(self.task, "", code).key)

    def usable(self, kernel: KernelExample) -> bool:
        return self.trusting or self.verified(kernel) is not None

    @property
    def has_baseline(self) -> bool:
        """Whether the naive kernel, to which others are compared, is right."""
        return self.usable(self.kernels[0])

    def example(self, role: Role, target: GeneratorTarget) -> TrainingExample | None:
        """What the function teaches the role; None where its kernels lack the receipts."""
        if role is Role.GENERATOR:
            return self.generate(target)
        return (self.repair() if self.is_for_repair else None) or self.optimize()

    def verified(self, kernel: KernelExample) -> KernelReceipt | None:
        """Its receipt, where the judge found it correct."""
        receipt = self.receipt(kernel.code)
        return receipt if receipt is not None and receipt.verdict.correct else None

    @property
    def is_for_repair(self) -> bool:
        return zlib.crc32(self.function.name.encode()) % REPAIR_EVERY == 0

    def broken(self) -> BrokenKernel | None:
        """The naive kernel with one fault, the same one each time for the same function."""
        return break_kernel(self.kernels[0].code, zlib.crc32(self.function.name.encode()))

    def generate(self, target: GeneratorTarget) -> TrainingExample | None:
        """The answer is the kernel alone: the generator's prompt asks for no reason."""
        if not self.has_baseline:
            return None
        kernel = self.fastest() if target == "best" else self.kernels[0]
        silent = kernel.model_copy(update={"why_faster": ""})
        return generating(self.task, silent, self.verified(kernel))

    def fastest(self) -> KernelExample:
        return self._fastest_of([kernel for kernel in self.kernels if self.usable(kernel)])

    @property
    def speeds(self) -> Mapping[str, float]:
        """Of the levels that a GPU timed at real sizes in this family, over the naive one."""
        return measured_speeds(family_of(self.function).name)

    def _fastest_of(self, judged: Sequence[KernelExample]) -> KernelExample:
        """The one whose level a GPU found the fastest in the family, by the median at real sizes. A
        level that was not measured is compared with it by the receipts, of which the emulator's are
        of small sizes: where they are level, the measured one stays; as synthesised, the last."""
        speeds = self.speeds
        measured = [kernel for kernel in judged if kernel.level in speeds]
        left = [kernel for kernel in judged if kernel.level not in speeds]
        if measured:
            left.insert(0, max(measured, key=lambda kernel: speeds[kernel.level]))
        if self.trusting:
            return left[-1]
        return min(left, key=lambda kernel: kernel_ms(self.verified(kernel)))

    def optimize(self) -> TrainingExample | None:
        """None where every other kernel is slower than the naive one. Where only receipts tell, on
        sizes where a launch is all that takes time (elementwise, on the emulator) the two are
        level, and the better kernel is still what is to be learnt."""
        naive, *others = self.kernels
        better = [kernel for kernel in others if self.usable(kernel)]
        if not better or not self.has_baseline:
            return None
        best = self._fastest_of(better)
        before, after = self.verified(naive), self.verified(best)
        if best.level in self.speeds:
            slower = self.speeds[best.level] < 1.0
        else:
            slower = not self.trusting and kernel_ms(after) > _NO_SLOWER * kernel_ms(before)
        return None if slower else optimizing(self.task, naive, before, best, after)

    def repair(self) -> TrainingExample | None:
        """None where the judge did not notice the fault."""
        naive, broken = self.kernels[0], self.broken()
        after = self.verified(naive)
        before = self.receipt(broken.code) if broken is not None else None
        if broken is None or after is None or before is None or before.verdict.correct:
            return None
        return repairing(self.task, broken, before, naive, after, _short_digest(naive.code))


def kernel_ms(receipt: KernelReceipt | None) -> float:
    """Time of a judged kernel; infinite where none was told."""
    timing = receipt.verdict.timing if receipt is not None else None
    return timing.kernel_ms if timing is not None else float("inf")


def _short_digest(code: str) -> str:
    return Candidate(code=code).sha256[:8]


def _styles(count: int, seed: int) -> Iterator[Style]:
    """The compact style, then varied ones."""
    yield COMPACT
    yield from (varied_style(seed * 1_000_003 + k) for k in range(1, count))


def _families(
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


def round_robin(groups: Iterable[Iterable[T]]) -> Iterator[T]:
    """One of each group in turn, so that any prefix is balanced; drawn only as far as asked for."""
    for row in zip_longest(*groups):
        yield from (item for item in row if item is not None)
