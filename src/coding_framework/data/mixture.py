"""The mixture that SFT on modules learns from, part by part, and what it came to.

    receipts of the judge, own mistakes -> parts of a wanted size -> examples, statistics

Half of it shows a kernel of each module task that SFT shows (`modules.pool`): the one that is worth
showing, the fastest where it can compete with PyTorch and else the shortest. Modules of one layer
show it for a second spelling of the module too, and some modules a kernel of another level that is
about as fast: a slow one beside a fast one teaches to answer slowly. The rest is what a
conversation needs: faster kernels from slower ones, repairs of its own mistakes and of faults of
arguments, and the functions of the old algebra. Where it is asked for, modules beyond the catalogue
come on top.
Guaranteed: no example is of a validation or held-out task, nor, own mistakes aside, of a task that
is left for RFT and RL; a part that lacks material is short and says so: nothing stands in for it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from zlib import crc32

from coding_framework.data.examples import (
    Receipts,
    generating,
    kernel_ms,
    optimizing,
    repairing,
    training_examples,
)
from coding_framework.data.faults import ARGUMENT_FAULTS, BrokenKernel, broken_kernels
from coding_framework.data.kernels import kernels_of, write_all
from coding_framework.data.modules.catalog import may_be_spelt_anew
from coding_framework.data.modules.other_names import with_arguments
from coding_framework.data.modules.pool import shown_drafts
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.modules.sizes import at_other_sizes
from coding_framework.data.modules.speeds import Speeds, measured_speed
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.pairs import kernel_jobs
from coding_framework.data.synthesis.receipts import (
    BROKEN,
    Job,
    KernelReceipt,
    by_task,
    task_digest,
    with_naive,
)
from coding_framework.errors import UnreadableError
from coding_framework.types import KernelExample, Record, Role, Task, TaskScope, TrainingExample

PARTS: Mapping[str, int] = {
    "best kernel": 4200,
    "another spelling": 1200,
    "another level": 600,
    "functions": 1500,
    "optimise": 2000,
    "own mistakes": 1500,
    "argument faults": 1000,
}
"""Examples of each part of the whole mixture."""
TOTAL = sum(PARTS.values())
BEYOND = "beyond the catalogue"
"""The part of the spare modules, which is none of the mixture's shares."""
WORTH_SHARE = 0.2
"""Share of a family's kernels of a level that are at least as fast as eager, from which on its
kernels of that level are shown for their speed. Below it the shortest kernel is shown, which is
learnt best."""
WORTH = 0.8
"""The same of a kernel whose family and level are not known: its own speed over eager."""
CLOSE = 0.8
"""Share of the speed of a task's best kernel from which on another level may be shown beside it."""
SPARE = 1.1
MOST_CHARACTERS = 4_800
"""Of a kernel that an answer of 2,048 tokens can hold: by the vocabulary of Qwen2.5-Coder a token
of kernels of that length has 2.34 characters."""


Judgements = Mapping[str, Sequence[KernelReceipt]]
"""Receipts by the task's digest (`by_task`)."""


class PartStatistics(Record):
    """A part of a mixture."""

    wanted: int
    found: int
    tasks: int
    kinds: Mapping[str, int]
    levels: Mapping[str, int]
    """Of answers of our own: by the level in their ids."""


class MixtureStatistics(Record):
    """What a mixture holds. Maker: `Mixture.statistics`. Consumers: people, its manifest."""

    examples: int
    unjudged: int
    """Examples whose kernel has no receipt of the judge."""
    tasks: int
    parts: Mapping[str, PartStatistics]
    families: Mapping[str, int]
    roles: Mapping[str, int]
    too_long: Mapping[str, int] = {}
    """By level: kernels of the tasks that were looked at which no answer can hold."""

    def table(self) -> str:
        """For people."""
        rows = [f"{'part':<18}{'wanted':>8}{'found':>8}{'tasks':>8}  kinds and levels"]
        for name, part in self.parts.items():
            inside = ", ".join(
                f"{n} {what}" for what, n in chain(part.kinds.items(), part.levels.items())
            )
            rows.append(f"{name:<18}{part.wanted:>8}{part.found:>8}{part.tasks:>8}  {inside}")
        rows.append(f"{self.examples} examples of {self.tasks} tasks")
        if self.too_long:
            told = ", ".join(f"{count} of {level}" for level, count in self.too_long.items())
            rows.append(f"left out, as no answer holds them: {told}")
        if self.unjudged:
            rows.append(f"{self.unjudged} of them show a kernel that no judge has seen")
        return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class Mixture:
    """The examples, by part."""

    parts: Mapping[str, tuple[TrainingExample, ...]]
    wanted: Mapping[str, int]
    too_long: Mapping[str, int]

    def examples(self, seed: int = 0) -> list[TrainingExample]:
        """All of them, shuffled."""
        found = list(chain.from_iterable(self.parts.values()))
        random.Random(f"mixture/{seed}").shuffle(found)
        return found

    def statistics(self) -> MixtureStatistics:
        """Counts of what is there."""
        everything = list(chain.from_iterable(self.parts.values()))
        return MixtureStatistics(
            examples=len(everything),
            unjudged=sum(not e.receipt for e in everything),
            tasks=len({e.task.name for e in everything}),
            parts={n: _told(found, self.wanted[n]) for n, found in self.parts.items()},
            families=_counts(e.task.family for e in everything),
            roles=_counts(e.role.value for e in everything),
            too_long=dict(sorted(self.too_long.items())),
        )


def sft_mixture(
    receipts: Receipts,
    *,
    unjudged: bool = False,
    total: int = TOTAL,
    drafts: Sequence[ModuleDraft] | None = None,
    functions: Receipts | None = None,
    mistakes: Sequence[TrainingExample] = (),
    spare: Sequence[ModuleDraft] = (),
    other_sizes: float = 0.0,
    speeds: Speeds | None = None,
    fits: Callable[[str], bool] = lambda code: len(code) <= MOST_CHARACTERS,
    seed: int = 0,
) -> Mixture:
    """The mixture of about `total` examples, deterministic. fits: whether a kernel is short enough
    for an answer; longer ones are not there for the mixture.

    receipts: of module kernels, which they hold. unjudged: of tasks without one, the kernels that
    the compiler writes are taken, and shown without a verdict where a conversation shows one.
    drafts: tasks that it shows, by default all that SFT does. functions: receipts of the old
    algebra's kernels, by default those that ship, which are fewer than the whole mixture wants.
    mistakes: examples that were built from conversations (`data.mistakes`). spare: tasks beyond the
    catalogue, of which one kernel each is shown, above `total`. other_sizes: share of the answers
    to a module that are shown at sizes of their own (`at_other_sizes`) and with other names; with
    `unjudged`.
    speeds: what stands for the speeds of a task's kernels where they have not all been measured;
    where it does not know them, the highest level is the fastest.
    """
    wanted = {name: round(count * total / TOTAL) for name, count in PARTS.items()}
    judged = by_task(receipts)
    taught = _Taught(judged, unjudged, fits, speeds or {}, other_sizes if unjudged else 0.0)
    shown = shown_drafts() if drafts is None else drafts
    parts = {
        "best kernel": _most(taught.best(shown), wanted["best kernel"]),
        "another spelling": _most(taught.spelt_anew(shown), wanted["another spelling"]),
        "another level": _most(taught.others(shown), wanted["another level"]),
        "functions": _functions(functions, wanted["functions"], seed),
        "optimise": _most(taught.improvements(shown), wanted["optimise"]),
        "own mistakes": tuple(mistakes[: wanted["own mistakes"]]),
        "argument faults": _most(taught.repairs(shown), wanted["argument faults"]),
    }
    if spare:
        wanted[BEYOND] = len(spare)
        if unjudged:
            write_all(without_receipts(map(module_task, spare), judged))
        parts[BEYOND] = tuple(taught.best(spare))
    return Mixture(parts, wanted, taught.too_long)


def mixture_drafts(total: int) -> list[ModuleDraft]:
    """Tasks for a mixture of that size: as many as its largest part needs, and some to spare for
    those without a correct kernel that an answer can hold."""
    needed = PARTS["best kernel"] * total / TOTAL
    return shown_drafts()[: math.ceil(SPARE * needed)]


def mixture_jobs(drafts: Iterable[ModuleDraft], receipts: Receipts) -> Iterator[Job]:
    """What has to be judged for the mixture: the compiler's kernels of its tasks without receipts,
    and one fault of each task's naive kernel."""
    judged, chosen = by_task(receipts), list(drafts)
    yield from kernel_jobs(without_receipts(map(module_task, chosen), judged))
    for draft in chosen:
        task = module_task(draft)
        known = judged.get(task_digest(task))
        kernels = [receipt.kernel for receipt in known] if known else _written(task)
        broken = _broken(kernels, task.name)
        if broken is not None:
            yield Job(task, f"{BROKEN}{broken.fault}", broken.code, broken.why_fixed)


def _broken(kernels: Iterable[KernelExample], name: str) -> BrokenKernel | None:
    """The naive one with a fault of an argument; None where there is none, or nothing to break."""
    naive = next((kernel for kernel in kernels if kernel.level == "naive"), None)
    if naive is None:
        return None
    return next(iter(broken_kernels(naive.code, crc32(name.encode()), among=ARGUMENT_FAULTS)), None)


def without_receipts(tasks: Iterable[Task], judged: Judgements) -> list[Task]:
    """The tasks of which no kernel was judged: the compiler writes theirs. Where there are some,
    these are the faster ones."""
    return [task for task in tasks if task_digest(task) not in judged]


def _written(task: Task) -> Sequence[KernelExample]:
    """The compiler's kernels; () where it has none."""
    try:
        return kernels_of(task)
    except UnreadableError:
        return ()


Judged = tuple[KernelExample, KernelReceipt | None]
"""A kernel, and what the judge said of it."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A task with what may be shown of it."""

    draft: ModuleDraft
    task: Task
    kernels: list[Judged]
    """Correct, from the slowest to the fastest."""
    best: int
    """Which of them is worth showing."""
    close: list[int]
    """Others that are about as fast."""
    broken: BrokenKernel | None
    """The naive one with a fault of an argument."""


class _Taught:
    """What tasks teach; each is made once."""

    def __init__(
        self,
        judged: Judgements,
        unjudged: bool,
        fits: Callable[[str], bool],
        speeds: Speeds,
        other_sizes: float,
    ) -> None:
        """unjudged: tasks without a receipt have the compiler's kernels."""
        self._judged, self._unjudged, self._fits = judged, unjudged, fits
        self._speeds, self._other_sizes = speeds, other_sizes
        self._made: dict[str, _Shown | None] = {}
        self.too_long: Counter[str] = Counter()

    def _all(self, drafts: Sequence[ModuleDraft]) -> Iterator[_Shown]:
        for draft in drafts:
            if draft.name not in self._made:
                self._made[draft.name] = self._make(draft)
            shown = self._made[draft.name]
            if shown is not None:
                yield shown

    def _make(self, draft: ModuleDraft) -> _Shown | None:
        task = module_task(draft)
        receipts = self._judged.get(task_digest(task), ())
        kernels: list[Judged] = [(r.kernel, r) for r in receipts if r.broken is None]
        if not receipts and self._unjudged:
            kernels = [(kernel, None) for kernel in _written(task)]
        self.too_long.update(k.level for k, _ in kernels if not self._fits(k.code))
        correct = [
            (kernel, receipt)
            for kernel, receipt in kernels
            if self._fits(kernel.code) and (receipt is None or receipt.verdict.correct)
        ]
        if not correct:
            return None
        correct, speeds = self._ordered(task.family, correct)
        worth = [i for i, kernel in enumerate(correct) if not self._is_slow(task.family, kernel)]
        shortest = min(range(len(correct)), key=lambda i: len(correct[i][0].code))
        best = worth[-1] if worth else shortest
        others = (i for i in worth or range(len(correct)) if i != best)
        close = [i for i in others if not speeds or speeds[i] >= CLOSE * speeds[-1]]
        broken = _broken([kernel for kernel, _ in kernels], task.name)
        return _Shown(draft, with_naive(task, receipts), correct, best, close, broken)

    def _ordered(self, family: str, kernels: list[Judged]) -> tuple[list[Judged], list[float]]:
        """(a task's kernels from the slowest to the fastest, their relative speeds): each as it was
        measured, or as its family's kernels of its level were; where one of them is not known, all
        by the emulator's times; where these are not known either, as they come, and no speeds."""
        found = [self._over_eager(family, kernel) for kernel in kernels]
        speeds = [speed for speed in found if speed is not None]
        if len(speeds) < len(kernels):
            if any(receipt is None for _, receipt in kernels):
                return kernels, []
            speeds = [1 / kernel_ms(receipt) for _, receipt in kernels if receipt is not None]
        order = sorted(range(len(kernels)), key=speeds.__getitem__)
        return [kernels[i] for i in order], [speeds[i] for i in order]

    def _over_eager(self, family: str, kernel: Judged) -> float | None:
        level = self._speeds.get((family, kernel[0].level))
        return measured_speed(kernel[1]) or (level.median if level is not None else None)

    def _is_slow(self, family: str, kernel: Judged) -> bool:
        """Whether a kernel is not worth showing for its speed. What its family and level are like
        goes before its own speed: a policy cannot tell the tasks apart where a family's fast
        kernels lose, and where it was shown short ones for these it wrote short ones for all."""
        own, alike = measured_speed(kernel[1]), self._speeds.get((family, kernel[0].level))
        if alike is not None:
            return alike.at_least_eager < WORTH_SHARE
        return own is not None and own < WORTH

    def _answer(self, shown: _Shown, at: int, spelling: int = 0) -> TrainingExample:
        """The task and one of its kernels; a part of them at other sizes and with other names. The
        kernel is the same then, but for its arguments' names: at other sizes without a receipt."""
        kernel, receipt = shown.kernels[at]
        own = shown.draft
        drawn = random.Random(f"{own.name}/{at}/{spelling}").random() < self._other_sizes
        draft = at_other_sizes(own, spelling) if drawn else own
        moved = draft is not own
        if not spelling and not moved:
            return _generate(shown.task, kernel, receipt)
        task = module_task(draft, spelling, renamed=moved)
        code = with_arguments(kernel.code, shown.task, task)
        kernel = kernel.model_copy(update={"code": code})
        example = _generate(task, kernel, None if moved else receipt)
        said = "/spelt-anew" * (spelling > 0) + "/other-sizes" * moved
        return example.model_copy(update={"id": example.id + said})

    def best(self, drafts: Sequence[ModuleDraft]) -> Iterator[TrainingExample]:
        yield from (self._answer(shown, shown.best) for shown in self._all(drafts))

    def spelt_anew(self, drafts: Sequence[ModuleDraft]) -> Iterator[TrainingExample]:
        """The best kernel of tasks of one layer, for another spelling of the module."""
        for shown in self._all(drafts):
            draft, own = shown.draft, shown.task.reference
            if may_be_spelt_anew(draft) and module_task(draft, 1).reference != own:
                yield self._answer(shown, shown.best, spelling=1)

    def others(self, drafts: Sequence[ModuleDraft]) -> Iterator[TrainingExample]:
        """Of each task one kernel that is not the best and about as fast, so that the policy keeps
        several ways to answer: every level comes up."""
        for number, shown in enumerate(self._all(drafts)):
            if shown.close:
                yield self._answer(shown, shown.close[number % len(shown.close)])

    def improvements(self, drafts: Sequence[ModuleDraft]) -> Iterator[TrainingExample]:
        """From a kernel to the next faster one; without a verdict where one of them has none."""
        for number, shown in enumerate(self._all(drafts)):
            if len(shown.kernels) > 1:
                at = number % (len(shown.kernels) - 1)
                (slow, before), (fast, after) = shown.kernels[at : at + 2]
                if before is None or after is None:
                    before = after = None
                yield optimizing(shown.task, slow, before, fast, after)

    def repairs(self, drafts: Sequence[ModuleDraft]) -> Iterator[TrainingExample]:
        """From the naive kernel with a fault of an argument to the naive kernel."""
        for shown in self._all(drafts):
            naive = next((one for one in shown.kernels if one[0].level == "naive"), None)
            if shown.broken is None or naive is None:
                continue
            (kernel, after), broken = naive, shown.broken
            known = self._judged.get(task_digest(shown.task), ())
            before = next((r for r in known if r.code == broken.code), None)
            if before is None or after is None:
                if not self._unjudged:
                    continue
                before = after = None
            elif before.verdict.correct:
                continue
            yield repairing(shown.task, broken, before, kernel, after)


def _generate(task: Task, kernel: KernelExample, receipt: KernelReceipt | None) -> TrainingExample:
    return generating(task, kernel.model_copy(update={"why_faster": ""}), receipt)


def _functions(receipts: Receipts | None, wanted: int, seed: int) -> tuple[TrainingExample, ...]:
    """Kernels of the old algebra. receipts: None: of the functions that ship."""
    scope: TaskScope = "starter" if receipts is None else "all"
    return tuple(
        training_examples(
            Role.GENERATOR, wanted, seed, receipts=receipts, scope=scope, target="best"
        )
    )


def _most(found: Iterator[TrainingExample], count: int) -> tuple[TrainingExample, ...]:
    return tuple(islice(found, count))


def _told(found: Sequence[TrainingExample], wanted: int) -> PartStatistics:
    return PartStatistics(
        wanted=wanted,
        found=len(found),
        tasks=len({e.task.name for e in found}),
        kinds=_counts(e.kind for e in found),
        levels=_counts(e.id.split("/")[2] for e in found if e.kind != "repair" and "/" in e.id),
    )


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))
