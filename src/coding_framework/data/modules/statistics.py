"""Lists and counts module tasks without making them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from coding_framework.data.modules.catalog import all_drafts, family_names
from coding_framework.data.modules.records import ModuleDraft, Part
from coding_framework.data.modules.tasks import tier_of
from coding_framework.data.modules.writing import describe
from coding_framework.errors import UsageError
from coding_framework.types import Record, Split


def select_modules(
    *, split: Split | None = None, family: str | None = None, tier: int | None = None
) -> list[ModuleDraft]:
    """The drafts of the catalogue, filtered. Raises UsageError for an unknown family."""
    if family is not None and family not in family_names():
        known = ", ".join(family_names())
        raise UsageError(f"no family of modules is called {family!r}; there are: {known}")
    return [
        draft
        for draft in all_drafts()
        if (family is None or draft.family == family)
        and (tier is None or tier_of(draft) == tier)
        and (split is None or (split is Split.TRAIN) == (draft.part == "train"))
        and split is not Split.OUTSIDE
    ]


class ListedModule(Record):
    """A line of `cuda-rl tasks list --scope modules`."""

    name: str
    tier: int
    part: Part
    family: str
    ops: tuple[str, ...]
    description: str

    @classmethod
    def of(cls, draft: ModuleDraft) -> Self:
        return cls(
            name=draft.name,
            tier=tier_of(draft),
            part=draft.part,
            family=draft.family,
            ops=tuple(o.name for o in draft.operations),
            description=describe(draft),
        )

    @property
    def line(self) -> str:
        """For people."""
        return (
            f"{self.name:<60}  {self.tier}  {self.part:<10}  {self.family:<26}  {self.description}"
        )


class ModuleStatistics(Record):
    """How many module tasks there are. Maker: `module_statistics`. Consumer: people."""

    tasks: int
    parts: Mapping[str, int]
    families: Mapping[str, Mapping[str, int]]
    """By family and part."""
    operations: Mapping[str, int]
    """In how many tasks each occurs."""

    def table(self) -> str:
        """For people."""
        parts = ("train", "validation", "held_out")
        head = f"{'family':<26}" + "".join(f"{part:>12}" for part in parts)
        rows = [
            f"{family:<26}" + "".join(f"{counts.get(part, 0):>12}" for part in parts)
            for family, counts in self.families.items()
        ]
        total = f"{'all':<26}" + "".join(f"{self.parts.get(part, 0):>12}" for part in parts)
        return "\n".join((head, *rows, total, f"{len(self.operations)} operations"))


def module_statistics(drafts: Sequence[ModuleDraft]) -> ModuleStatistics:
    """Counts of the drafts."""
    families: dict[str, Counter[str]] = {}
    operations: Counter[str] = Counter()
    for draft in drafts:
        families.setdefault(draft.family, Counter())[draft.part] += 1
        operations.update({operation.name for operation in draft.operations})
    return ModuleStatistics(
        tasks=len(drafts),
        parts=dict(Counter(draft.part for draft in drafts)),
        families={name: dict(counts) for name, counts in families.items()},
        operations=dict(sorted(operations.items())),
    )
