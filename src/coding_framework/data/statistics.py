"""Counts tasks by family and tier, and the kernels of theirs that have been judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from coding_framework.data.listing import Row
from coding_framework.data.synthesis.receipts import KernelReceipt, Key, by_task
from coding_framework.types import Record


class FamilyStatistics(Record):
    """Counts of one family."""

    family: str
    tier: int
    train: int
    held_out: int
    judged: int
    """Kernels with a receipt."""
    correct: int
    levels: tuple[str, ...]


class TaskStatistics(Record):
    """Maker: task_statistics. Consumer: `cuda-rl tasks stats`."""

    tasks: int
    families: tuple[FamilyStatistics, ...]

    @property
    def by_tier(self) -> dict[int, tuple[int, int, int]]:
        """Tier -> (families, training tasks, held-out tasks)."""
        found: dict[int, tuple[int, int, int]] = {}
        for family in self.families:
            families, train, held_out = found.get(family.tier, (0, 0, 0))
            found[family.tier] = (families + 1, train + family.train, held_out + family.held_out)
        return dict(sorted(found.items()))

    def table(self) -> str:
        """For people."""
        head = f"{'family':<26}{'tier':>5}{'train':>7}{'held out':>10}"
        lines = [f"{head}{'judged':>8}{'correct':>9}  levels"]
        lines += [
            f"{f.family:<26}{f.tier:>5}{f.train:>7}{f.held_out:>10}"
            f"{f.judged:>8}{f.correct:>9}  {', '.join(f.levels)}"
            for f in self.families
        ]
        lines += [
            f"tier {tier}: {families} families, {train} training tasks, {held_out} held out"
            for tier, (families, train, held_out) in self.by_tier.items()
        ]
        judged = sum(f.judged for f in self.families)
        correct = sum(f.correct for f in self.families)
        lines.append(
            f"{self.tasks} tasks of {len(self.families)} families; {judged} kernels judged, "
            f"{correct} of them correct"
        )
        return "\n".join(lines)


def task_statistics(tasks: Iterable[Row], receipts: Mapping[Key, KernelReceipt]) -> TaskStatistics:
    """Counts of listed tasks and of their judged kernels."""
    of_task = by_task(receipts)
    counts: dict[tuple[int, str], Counter[str]] = {}
    levels: dict[tuple[int, str], dict[str, None]] = {}
    for task in tasks:
        place = task["tier"], task["family"]
        count = counts.setdefault(place, Counter())
        count[task["split"]] += 1
        for receipt in of_task.get(task["digest"], ()):
            if receipt.broken is None:
                levels.setdefault(place, {})[receipt.level] = None
                count["judged"] += 1
                count["correct"] += receipt.verdict.correct
    families = tuple(
        FamilyStatistics(
            family=family,
            tier=tier,
            levels=tuple(levels.get((tier, family), ())),
            **{name: count[name] for name in ("train", "held_out", "judged", "correct")},
        )
        for (tier, family), count in sorted(counts.items())
    )
    return TaskStatistics(tasks=sum(f.train + f.held_out for f in families), families=families)
