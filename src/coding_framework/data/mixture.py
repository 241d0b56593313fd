"""The mixture that SFT on modules learns from, part by part, and what it came to.

    receipts of the judge, own mistakes, archive -> parts of a wanted size -> examples, statistics

Half of it shows a kernel of each module task that SFT shows (`modules.pool`): of most the one that
is worth showing, the fastest where it can compete with PyTorch and else the shortest, and of some
another level too, so that the policy keeps several ways to answer. The rest is what a conversation
needs: faster kernels from slower ones, repairs of its own mistakes and of faults of arguments, and
the functions of the old algebra. Where it is asked for, modules beyond the catalogue come on top.
Guaranteed: no example is of a validation or held-out task, or of a task that is left for RFT and
RL; a part that lacks material is short and says so: nothing stands in for it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import median
from typing import NamedTuple

from coding_framework.data.examples import (
    UNVERIFIED,
    Receipts,
    generating,
    kernel_ms,
    optimizing,
    repairing,
    training_examples,
)
from coding_framework.data.modules.catalog import find_draft
from coding_framework.data.modules.examples import module_kernels
from coding_framework.data.modules.faults import break_module
from coding_framework.data.modules.kernels import MOST_CHARACTERS
from coding_framework.data.modules.pool import shown_drafts
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.synthesis.faults import BrokenKernel
from coding_framework.data.synthesis.receipts import Job, KernelReceipt
from coding_framework.types import KernelExample, Record, Role, Task, TaskScope, TrainingExample

PARTS: Mapping[str, int] = {
    "best kernel": 4200,
    "another level": 1800,
    "functions": 1500,
    "optimise": 2000,
    "own mistakes": 1500,
    "argument faults": 1000,
}
"""Examples of each part of the whole mixture."""
TOTAL = sum(PARTS.values())
BEYOND = "beyond the catalogue"
"""The part of the spare modules, which is none of the mixture's shares."""
WORTH = 0.8
"""Speed over PyTorch eager from which on a kernel is shown for its speed, as RL's milestones pay.
Below it the shortest kernel is shown, which is learnt best."""
WORTH_SHARE = 0.2
"""The same of a kernel whose own speed is not known: the share of its family's kernels of its level
that are at least as fast as eager. Where their median is 0.8, a third of them are."""
SPARE = 1.1
ARCHIVE_SHARE = 0.3
"""Most of the part "functions" that kernels of the archive take, where they are given."""


class LevelSpeed(NamedTuple):
    """How fast a family's kernels of a level are, over eager."""

    median: float
    at_least_eager: float
    """Their share."""


Speeds = Mapping[tuple[str, str], LevelSpeed]
"""By (family, level)."""


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
    total: int = TOTAL,
    drafts: Sequence[ModuleDraft] | None = None,
    functions: Receipts | None = None,
    mistakes: Sequence[TrainingExample] = (),
    archive: Sequence[TrainingExample] = (),
    spare: Sequence[ModuleDraft] = (),
    speeds: Speeds | None = None,
    fits: Callable[[str], bool] = lambda code: len(code) <= MOST_CHARACTERS,
    seed: int = 0,
) -> Mixture:
    """The mixture of about `total` examples, deterministic. fits: whether a kernel is short enough
    for an answer; longer ones are not there for the mixture.

    receipts: of module kernels; `UNVERIFIED` takes them as synthesised, and then the argument
    faults and the optimise examples show no verdict. drafts: tasks that it shows, by default all
    that SFT does. functions: of the old algebra's kernels, by default those that ship, which are
    fewer than the whole mixture wants. mistakes, archive: examples that were built from
    conversations (`data.mistakes`) and from the archive. spare: tasks beyond the catalogue, of
    which one kernel each is shown, above `total`. speeds: what stands for the times of kernels that
    are taken as synthesised; without it the highest level is the fastest.
    """
    wanted = {name: round(count * total / TOTAL) for name, count in PARTS.items()}
    taught = _Taught(receipts, fits, shown_drafts() if drafts is None else drafts, speeds or {})
    parts = {
        "best kernel": _most(taught.best(), wanted["best kernel"]),
        "another level": _most(taught.others(), wanted["another level"]),
        "functions": _functions(functions, archive, wanted["functions"], seed),
        "optimise": _most(taught.improvements(), wanted["optimise"]),
        "own mistakes": tuple(mistakes[: wanted["own mistakes"]]),
        "argument faults": _most(taught.repairs(), wanted["argument faults"]),
    }
    if spare:
        wanted[BEYOND] = len(spare)
        beyond = _Taught(receipts, fits, spare, speeds or {})
        parts[BEYOND] = tuple(beyond.best())
        taught.too_long += beyond.too_long
    return Mixture(parts, wanted, taught.too_long)


def level_speeds(receipts: Receipts) -> dict[tuple[str, str], LevelSpeed]:
    """How fast the correct kernels are that were measured, by family and level of the module."""
    found: dict[tuple[str, str], list[float]] = {}
    for receipt in receipts.values():
        draft, speed = find_draft(receipt.task), _measured(receipt)
        if draft is not None and speed is not None and receipt.verdict.correct:
            found.setdefault((draft.family, receipt.level), []).append(speed)
    return {
        place: LevelSpeed(median(values), sum(v >= 1.0 for v in values) / len(values))
        for place, values in sorted(found.items())
    }


def _measured(receipt: KernelReceipt | None) -> float | None:
    """Speed over eager; None where no GPU measured it."""
    timing = receipt.verdict.timing if receipt is not None else None
    return timing.speedup if timing is not None and not timing.modelled else None


def mixture_drafts(total: int) -> list[ModuleDraft]:
    """Tasks for a mixture of that size: as many as its largest part needs, and some to spare for
    those without a correct kernel that an answer can hold."""
    needed = PARTS["best kernel"] * total / TOTAL
    return shown_drafts()[: math.ceil(SPARE * needed)]


def mixture_jobs(drafts: Iterable[ModuleDraft]) -> Iterator[Job]:
    """What has to be judged for the mixture: all kernels of its tasks, and one fault of each."""
    for draft in drafts:
        task, kernels = module_kernels(draft)
        yield from (Job(task, kernel.level, kernel.code) for kernel in kernels)
        broken = break_module(kernels[0].code, task.name)
        if broken is not None:
            yield Job(task, f"broken:{broken.fault}", broken.code)


Judged = tuple[KernelExample, KernelReceipt | None]


class _Taught:
    """Tasks with their correct kernels, each made once."""

    def __init__(
        self,
        receipts: Receipts,
        fits: Callable[[str], bool],
        drafts: Sequence[ModuleDraft],
        speeds: Speeds,
    ) -> None:
        self._receipts, self._fits, self._drafts, self._speeds = receipts, fits, drafts, speeds
        self._made: dict[str, tuple[Task, list[Judged], BrokenKernel | None]] = {}
        self.too_long: Counter[str] = Counter()

    def _of(self, draft: ModuleDraft) -> tuple[Task, list[Judged], BrokenKernel | None]:
        """(task, its correct kernels from the slowest to the fastest, its naive one broken)."""
        if draft.name not in self._made:
            task, kernels = module_kernels(draft)
            self.too_long.update(k.level for k in kernels if not self._fits(k.code))
            found: list[Judged] = [(k, self._receipt(task, k.level, k.code)) for k in kernels]
            correct = [
                (k, r)
                for k, r in found
                if self._fits(k.code)
                and (self._receipts is UNVERIFIED or (r is not None and r.verdict.correct))
            ]
            if self._receipts is not UNVERIFIED:
                correct.sort(key=lambda one: -kernel_ms(one[1]))
            elif all((task.family, k.level) in self._speeds for k, _ in correct):
                correct.sort(key=lambda one: self._speeds[task.family, one[0].level].median)
            self._made[draft.name] = (task, correct, break_module(kernels[0].code, task.name))
        return self._made[draft.name]

    def _receipt(self, task: Task, level: str, code: str) -> KernelReceipt | None:
        return self._receipts.get(Job(task, level, code).key)

    def _all(self) -> Iterator[tuple[Task, list[Judged], BrokenKernel | None]]:
        return (each for each in map(self._of, self._drafts) if each[1])

    def _split(self, task: Task, kernels: list[Judged]) -> tuple[Judged, list[Judged]]:
        """(the kernel that is worth showing, the others): the fastest, but the shortest where that
        is known to be slower than eager."""
        kernel, receipt = kernels[-1]
        own, alike = _measured(receipt), self._speeds.get((task.family, kernel.level))
        at = len(kernels) - 1
        slow = own < WORTH if own else alike is not None and alike.at_least_eager < WORTH_SHARE
        if slow:
            at = min(range(len(kernels)), key=lambda i: len(kernels[i][0].code))
        return kernels[at], kernels[:at] + kernels[at + 1 :]

    def best(self) -> Iterator[TrainingExample]:
        for task, kernels, _ in self._all():
            yield _generate(task, *self._split(task, kernels)[0])

    def others(self) -> Iterator[TrainingExample]:
        """Of each task one kernel that is not the best: every level comes up."""
        for number, (task, kernels, _) in enumerate(self._all()):
            others = self._split(task, kernels)[1]
            if others:
                yield _generate(task, *others[number % len(others)])

    def improvements(self) -> Iterator[TrainingExample]:
        """From a kernel to the next faster one."""
        for number, (task, kernels, _) in enumerate(self._all()):
            if len(kernels) > 1:
                at = number % (len(kernels) - 1)
                (slow, before), (fast, after) = kernels[at : at + 2]
                yield optimizing(task, slow, before, fast, after)

    def repairs(self) -> Iterator[TrainingExample]:
        """From the naive kernel with a fault of an argument to the naive kernel."""
        for task, kernels, broken in self._all():
            naive = next((one for one in kernels if one[0].level == "naive"), None)
            if broken is None or naive is None:
                continue
            kernel, after = naive
            before = self._receipt(task, "", broken.code)
            if self._receipts is UNVERIFIED:
                yield _unjudged_repair(task, broken, kernel)
            elif before is not None and after is not None and not before.verdict.correct:
                yield repairing(task, broken, before, kernel, after, before.kernel_sha256[:8])


def _generate(task: Task, kernel: KernelExample, receipt: KernelReceipt | None) -> TrainingExample:
    return generating(task, kernel.model_copy(update={"why_faster": ""}), receipt)


def _unjudged_repair(task: Task, broken: BrokenKernel, kernel: KernelExample) -> TrainingExample:
    return TrainingExample(
        id=f"repair/{task.name}/{broken.fault}/as-synthesised",
        task=task, role=Role.OPTIMIZER, kind="repair", code=kernel.code, why=broken.why_fixed,
        previous_code=broken.code,
    )  # fmt: skip


def _functions(
    receipts: Receipts | None, archive: Sequence[TrainingExample], wanted: int, seed: int
) -> tuple[TrainingExample, ...]:
    """Kernels of the old algebra, and of the archive where it is given. receipts: None: of the
    functions that ship."""
    from_archive = tuple(archive[: round(ARCHIVE_SHARE * wanted)])
    count = wanted - len(from_archive)
    scope: TaskScope = "starter" if receipts is None else "all"
    ours = training_examples(
        Role.GENERATOR, count, seed, receipts=receipts, scope=scope, target="best"
    )
    return (*from_archive, *ours)


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
