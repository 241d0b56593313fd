"""Draws the module tasks: the catalogue with its split, and what lies beyond it.

The same everywhere. No task is a function of KernelBench's levels 1 to 3: `excluded.txt` names what
the grids and the grammar would give and KernelBench has (`benchmarks/module_tasks.py` makes it and
checks). Nothing of training has about the same value everywhere (`constant.txt` of the package,
made likewise).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from coding_framework.data.modules.catalog import MOST_SPARE, MOST_WIDER, constant_keys, share
from coding_framework.data.modules.pool import is_shown
from coding_framework.data.modules.records import ModuleDraft, Operation, Part
from drawing.epilogues import FUSED_FAMILIES, fused_drafts, pairs_of
from drawing.families import LEVEL_1
from drawing.wider import Wider, wider_modules

EXCLUDED_PATH = Path(__file__).with_name("excluded.txt")
HELD_OUT_FAMILIES = ("separable_convolution", "distance", "power_pooling")
HELD_OUT, VALIDATION = 400, 100
"""Tasks of these parts, half of them of level 2."""
_OF_PAIRS, _OF_COMBINATIONS = (0.15, 0.05), (0.10, 0.03)
"""Shares that are held out, and that validate."""
_PER_FAMILY = {
    **dict.fromkeys(FUSED_FAMILIES, 500),
    **{"linear_fused": 800, "conv2d_fused": 800, "conv_transpose3d_fused": 400},
}
"""Training tasks of a family of level 2."""


@cache
def excluded_keys() -> frozenset[str]:
    """Keys of drafts whose function KernelBench has."""
    return frozenset(EXCLUDED_PATH.read_text(encoding="utf-8").splitlines())


# --- the split -----------------------------------------------------------------------------------


def _part(text: str, held_out: float, validation: float) -> Part:
    """The part of what the text names. Shares of the parts other than training."""
    drawn = share(text)
    if drawn < held_out:
        return "held_out"
    return "validation" if drawn < held_out + validation else "train"


def part_of_combination(draft: ModuleDraft) -> Part:
    """Of level 1, by the operations and their arguments; all ranks and sizes go together."""
    if draft.family in HELD_OUT_FAMILIES:
        return "held_out"
    return _part(" ".join(o.key for o in draft.operations), *_OF_COMBINATIONS)


_part_of_pair = cache(lambda pair: _part(pair, *_OF_PAIRS))


def part_of_pairs(operations: Sequence[Operation]) -> Part:
    """Of level 2, by its neighbours: held out with one held-out pair."""
    parts = {_part_of_pair(pair) for pair in pairs_of(operations)}
    return "held_out" if "held_out" in parts else "validation" if "validation" in parts else "train"


# --- the catalogue -------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def catalogue() -> tuple[ModuleDraft, ...]:
    """Level 1, then level 2."""
    first = [replace(d, part=part_of_combination(d)) for d in grid()]
    second = [d for family in FUSED_FAMILIES for d in _fused(family)]
    kept = _limited(first, HELD_OUT - HELD_OUT // 2, VALIDATION // 2)
    fused = _limited(second, HELD_OUT // 2, VALIDATION // 2)
    return (*kept, *(d for d in fused if d.part != "train" or d.key not in constant_keys()))


def grid(*, excluding: bool = True) -> Iterator[ModuleDraft]:
    """The drafts of level 1, each function once."""
    seen = set(excluded_keys()) if excluding else set()
    elementwise = {key.partition(":")[2] for key in seen}  # without the ranks
    for drafts in LEVEL_1:
        for draft in drafts():
            everywhere = draft.family == "activation" and draft.key.partition(":")[2] in elementwise
            if draft.key not in seen and not everywhere:
                seen.add(draft.key)
                yield draft


def _fused(family: str) -> Iterator[ModuleDraft]:
    """A family's training tasks, and what is drawn beside them of the other parts."""
    wanted = _PER_FAMILY[family]
    for draft in _distinct(family):
        if wanted == 0:
            return
        wanted -= draft.part == "train"
        yield draft


def _distinct(family: str) -> Iterator[ModuleDraft]:
    """What is drawn of a family, without end, each function once."""
    seen = set(excluded_keys())
    for draft in fused_drafts(family):
        if draft.key not in seen:
            seen.add(draft.key)
            yield replace(draft, part=part_of_pairs(draft.operations[1:]))


def _limited(drafts: list[ModuleDraft], held_out: int, validation: int) -> list[ModuleDraft]:
    """The training tasks, and so many of the others, drawn by their names: the rest is dropped."""
    most: Mapping[Part, int] = {"held_out": held_out, "validation": validation}
    kept = set()
    for part, count in most.items():
        members = sorted((d.name for d in drafts if d.part == part), key=share)
        kept |= set(members[:count])
    return [d for d in drafts if d.part == "train" or d.name in kept]


# --- beyond it -----------------------------------------------------------------------------------


def spare() -> list[list[ModuleDraft]]:
    """More training tasks of every family of level 2."""
    found = []
    for family in FUSED_FAMILIES:
        start = _PER_FAMILY[family]
        training = (draft for draft in _distinct(family) if draft.part == "train")
        found.append(list(islice(training, start, start + MOST_SPARE)))
    return found


def wider() -> list[list[ModuleDraft]]:
    """Modules that the grids leave out, by family. None is of a combination of arguments that is
    held out, or that is left for RFT and RL."""
    first = {draft.key: draft for draft in catalogue() if draft.level == 1}
    left_out = {draft.key for draft in catalogue()} | excluded_keys()
    found = []
    shown = [draft for draft in first.values() if draft.part == "train" and is_shown(draft)]
    for ones in wider_modules(shown).values():
        kept: dict[str, ModuleDraft] = {}
        for one in ones:
            if len(kept) == MOST_WIDER:
                break
            draft = one.draft
            if draft.key not in left_out and _is_free(one, first):
                kept[draft.key] = draft
        found.append([*kept.values()])
    return found


def _is_free(one: Wider, known: Mapping[str, ModuleDraft]) -> bool:
    """Whether SFT may show it: as it shows, or might show, the module without what comes after."""
    bare = known.get(one.bare.key)
    if bare is not None:
        return bare.part == "train" and is_shown(bare)
    fused = one.bare.level == 2
    part = part_of_pairs(one.bare.operations) if fused else part_of_combination(one.bare)
    return part == "train"


# --- as data -------------------------------------------------------------------------------------


def row_of(draft: ModuleDraft) -> dict[str, Any]:
    """The inverse of `records.draft_of`."""
    rows = (*draft.sizes, *draft.gpu_sizes[:2])
    return {
        "family": draft.family,
        "level": draft.level,
        "layout": draft.layout,
        "part": draft.part,
        "operations": [[o.name, dict(o.arguments)] for o in draft.operations],
        "inputs": [[i.name, i.dims, i.dtype, i.low, i.high] for i in draft.inputs],
        "sizes": {name: [row[name] for row in rows] for name in rows[0]},
    }
