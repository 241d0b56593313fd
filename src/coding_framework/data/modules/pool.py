"""Which module tasks SFT shows, and which are left for rejection fine-tuning and RL.

An answer that was shown is known by heart: samples of such a task are mostly right, and say little
about the policy. So the training part is cut in two, by the tasks' names alone: the same cut
everywhere, whatever is drawn of either side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache

from coding_framework.data.examples import round_robin
from coding_framework.data.modules.catalog import (
    all_drafts,
    constant_keys,
    excluded_keys,
    part_of_combination,
    part_of_pairs,
    share,
)
from coding_framework.data.modules.records import ModuleDraft, Part
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.modules.wider import Wider, wider_modules
from coding_framework.errors import UsageError
from coding_framework.types import Task

SHOWN = 0.67
"""Share of the training tasks whose kernels SFT shows: as many as its mixture needs."""
MOST_WIDER = 200
"""Modules of a family that the catalogue leaves out: so many are known to be none of
KernelBench's."""
_SALT = "shown by SFT 1"


def is_shown(draft: ModuleDraft) -> bool:
    """Whether SFT's mixture has kernels of this training task."""
    return share(draft.name, _SALT) < SHOWN


def shown_drafts() -> list[ModuleDraft]:
    """The training tasks that SFT shows, of all families in turn."""
    return list(_balanced("train", is_shown))


def wider_drafts(each: int) -> list[ModuleDraft]:
    """Modules that the catalogue's grids leave out (`wider`), the families in turn: at most
    `each` are drawn of a family, and those whose output hardly varies are left out. None is of a
    combination of arguments that is held out, or that is left for RFT and RL. They can be shown to
    SFT; no list names them, and `find_draft` does not know them. Raises UsageError for more than
    were compared with KernelBench."""
    if each > MOST_WIDER:
        raise UsageError(f"there are {MOST_WIDER} wider modules of a family: ask for no more")
    if not each:  # what follows takes a second
        return []
    first = {draft.key: draft for draft in all_drafts() if draft.level == 1}
    left_out = {draft.key for draft in all_drafts()} | excluded_keys()
    chosen: dict[str, dict[str, ModuleDraft]] = {}
    shown = [draft for draft in first.values() if draft.part == "train" and is_shown(draft)]
    for family, ones in wider_modules(shown).items():
        kept = chosen.setdefault(family, {})
        for one in ones:
            if len(kept) == each:
                break
            draft = one.draft
            if draft.key not in left_out and _is_free(one, first):
                kept[draft.key] = draft
    drawn = round_robin(kept.values() for kept in chosen.values())
    return [draft for draft in drawn if draft.key not in constant_keys()]


def _is_free(one: Wider, catalogue: Mapping[str, ModuleDraft]) -> bool:
    """Whether SFT may show it: as it shows, or might show, the module without what comes after."""
    known = catalogue.get(one.bare.key)
    if known is not None:
        return known.part == "train" and is_shown(known)
    fused = one.bare.level == 2
    part = part_of_pairs(one.bare.operations) if fused else part_of_combination(one.bare)
    return part == "train"


def training_modules(count: int | None, *, skip: int = 0, most: int | None = None) -> list[Task]:
    """Training tasks that SFT does not show: `count` after the first `skip`, or where that is None
    all of them, up to `most`. Raises UsageError where there are fewer."""
    fresh = _as_held_out("train", lambda draft: not is_shown(draft))
    if count is None:
        count = max(1, min(most or len(fresh), len(fresh) - skip))
    return _tasks(fresh, skip, count, "training tasks of modules that SFT does not show")


def validation_modules(count: int) -> list[Task]:
    """Module tasks by which a policy or a temperature is chosen: neither trained on nor held out.
    Raises UsageError where there are fewer."""
    drafts = _as_held_out("validation", lambda _: True)
    return _tasks(drafts, 0, count, "validation tasks of modules")


def _as_held_out(part: Part, kept: Callable[[ModuleDraft], bool]) -> tuple[ModuleDraft, ...]:
    """Those of a part, of both levels in turn, as the held-out tasks and KernelBench have them; in
    each level of all families in turn. By families alone, whose most are of level 1, a fifth of 280
    training tasks was of level 2: RL made answers to these too long, and nothing told it."""
    levels: dict[int, list[ModuleDraft]] = {1: [], 2: []}
    for draft in _balanced(part, kept):
        levels[draft.level].append(draft)
    return tuple(round_robin(levels.values()))


def _tasks(drafts: tuple[ModuleDraft, ...], skip: int, count: int, what: str) -> list[Task]:
    if skip + count > len(drafts):
        raise UsageError(
            f"{skip + count} {what} were asked for, and there are {len(drafts)}: ask for fewer"
        )
    return [module_task(draft) for draft in drafts[skip : skip + count]]


def _balanced(part: Part, kept: Callable[[ModuleDraft], bool]) -> tuple[ModuleDraft, ...]:
    """Those of a part, by family in turn, each family in an order of its own."""
    families: dict[str, list[ModuleDraft]] = {}
    for draft in _ordered():
        if draft.part == part and kept(draft):
            families.setdefault(draft.family, []).append(draft)
    return tuple(round_robin(families.values()))


@cache
def _ordered() -> tuple[ModuleDraft, ...]:
    return tuple(sorted(all_drafts(), key=lambda d: hashlib.sha256(d.name.encode()).digest()))
