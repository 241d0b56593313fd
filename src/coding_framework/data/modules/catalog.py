"""Which module tasks there are, and which of them training may see.

The drafts are data, drawn once by `scripts/draw_tasks.py`. No task is a function of KernelBench's
levels 1 to 3. No task that is trained on or that `module_drafts` gives has about the same value
everywhere, as a mean of softmax has: a constant answer would be right (`constant.txt`, made and
checked by `benchmarks/module_tasks.py`). Held-out and validation tasks share no combination of
arguments (level 1) and not all their pairs of neighbouring operations (level 2) with training:
three families, a tenth of the combinations and 15% of the pairs are held out, and training has no
task with any of these.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import random
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from coding_framework.data.examples import round_robin
from coding_framework.data.modules.records import ModuleDraft, Part, draft_of
from coding_framework.errors import UsageError

CATALOGUE_PATH = Path(__file__).with_name("catalogue.json.xz")
"""Level 1, then level 2."""
SPARE_PATH = Path(__file__).with_name("spare.json.xz")
"""Of each family of level 2."""
WIDER_PATH = Path(__file__).with_name("wider.json.xz")
"""Of each family of level 1, and of blocks."""
SPELLINGS_PATH = Path(__file__).with_name("excluded_spellings.txt")
CONSTANT_PATH = Path(__file__).with_name("constant.txt")
_SALT = "coding-framework modules 1"
MOST_SPARE, MOST_WIDER = 1200, 200
"""Modules of a family beyond the catalogue: so many are known to be none of KernelBench's."""


def share(text: str, salt: str = _SALT) -> float:
    """A number in [0, 1) that the text alone decides."""
    digest = hashlib.sha256(f"{salt}|{text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


@cache
def excluded_spellings() -> frozenset[str]:
    """Keys of drafts whose second spelling is written as KernelBench writes a problem."""
    return frozenset(SPELLINGS_PATH.read_text(encoding="utf-8").splitlines())


def may_be_spelt_anew(draft: ModuleDraft) -> bool:
    """Whether a training task of one layer may be shown in its second spelling, too."""
    return draft.level == 1 and draft.part == "train" and draft.key not in excluded_spellings()


@cache
def constant_keys() -> frozenset[str]:
    """Keys of drafts of level 2 whose output hardly varies."""
    return frozenset(CONSTANT_PATH.read_text(encoding="utf-8").splitlines())


def _stored(path: Path) -> Any:
    return json.loads(lzma.decompress(path.read_bytes()))


@lru_cache(maxsize=1)
def all_drafts() -> tuple[ModuleDraft, ...]:
    """The catalogue: level 1, then level 2."""
    return tuple(map(draft_of, _stored(CATALOGUE_PATH)))


def spare_drafts(each: int) -> list[ModuleDraft]:
    """More training tasks of every family of level 2 than the catalogue has, the families in turn:
    `each` are drawn of a family, and those whose output hardly varies are left out. They can be
    shown to SFT; no list names them, and `find_draft` does not know them. Raises UsageError for
    more than were compared with KernelBench."""
    if each > MOST_SPARE:
        raise UsageError(
            f"there are {MOST_SPARE} spare modules of a family: ask for at most so many"
        )
    return _in_turn(SPARE_PATH, each)


def wider_drafts(each: int) -> list[ModuleDraft]:
    """Modules that the catalogue's grids leave out, the families in turn: at most `each` are drawn
    of a family. None is of a combination of arguments that is held out, or that is left for RFT and
    RL. Else as `spare_drafts`."""
    if each > MOST_WIDER:
        raise UsageError(f"there are {MOST_WIDER} wider modules of a family: ask for no more")
    return _in_turn(WIDER_PATH, each)


def _in_turn(path: Path, each: int) -> list[ModuleDraft]:
    """The first `each` of the lists in a file, one of each list in turn."""
    if not each:
        return []
    drafts = map(draft_of, round_robin(group[:each] for group in _stored(path)))
    return [draft for draft in drafts if draft.key not in constant_keys()]


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, ModuleDraft]:
    return {draft.name: draft for draft in all_drafts()}


def find_draft(name: str) -> ModuleDraft | None:
    """The draft of that name; None where there is none."""
    return _by_name().get(name) if name.startswith(("m1_", "m2_")) else None


def module_drafts(
    part: Part | None = None, *, level: int | None = None, count: int | None = None
) -> list[ModuleDraft]:
    """The module tasks of a part, in the catalogue's order; with `count` so many, drawn evenly: a
    larger count has all tasks of a smaller one, in front."""
    chosen = [d for d in all_drafts() if part in (None, d.part) and level in (None, d.level)]
    if count is not None and count < len(chosen):
        chosen = random.Random(_SALT).sample(chosen, len(chosen))
    return [draft for draft in chosen if draft.key not in constant_keys()][:count]
