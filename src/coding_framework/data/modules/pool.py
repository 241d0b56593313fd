"""Which module tasks SFT shows, and which are left for rejection fine-tuning and RL.

An answer that was shown is known by heart: samples of such a task are mostly right, and say little
about the policy. So the training part is cut in two, by the tasks' names alone: the same cut
everywhere, whatever is drawn of either side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache

from coding_framework.data.examples import round_robin
from coding_framework.data.modules.catalog import all_drafts, share
from coding_framework.data.modules.records import ModuleDraft, Part
from coding_framework.data.modules.tasks import module_task
from coding_framework.errors import UsageError
from coding_framework.types import Task

SHOWN = 0.67
"""Share of the training tasks whose kernels SFT shows: as many as its mixture needs."""
_SALT = "shown by SFT 1"


def is_shown(draft: ModuleDraft) -> bool:
    """Whether SFT's mixture has kernels of this training task."""
    return share(draft.name, _SALT) < SHOWN


def shown_drafts() -> list[ModuleDraft]:
    """The training tasks that SFT shows, of all families in turn."""
    return list(_balanced("train", is_shown))


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
