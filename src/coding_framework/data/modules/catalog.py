"""Which module tasks there are, and which of them training may see.

Guaranteed: the catalogue is the same everywhere. No task is a function of KernelBench's levels 1 to
3 (`excluded.txt` names what the grids and the grammar would give and KernelBench has; made and
checked by `benchmarks/module_tasks.py`). No task that is trained on or that `module_drafts` gives
has about the same value everywhere, as a mean of softmax has: a constant answer would be right
(`constant.txt`, made likewise). Held-out and validation tasks share no combination of arguments
(level 1) and not all their pairs of neighbouring operations (level 2) with training: three
families, a tenth of the combinations and 15% of the pairs are held out, and training has no task
with any of these.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

from coding_framework.data.modules.epilogues import FUSED_FAMILIES, fused_drafts, pairs_of
from coding_framework.data.modules.families import LEVEL_1
from coding_framework.data.modules.records import ModuleDraft, Operation, Part
from coding_framework.errors import UsageError

EXCLUDED_PATH = Path(__file__).with_name("excluded.txt")
SPELLINGS_PATH = Path(__file__).with_name("excluded_spellings.txt")
CONSTANT_PATH = Path(__file__).with_name("constant.txt")
HELD_OUT_FAMILIES = ("separable_convolution", "distance", "power_pooling")
HELD_OUT, VALIDATION = 400, 100
"""Tasks of these parts, half of them of level 2."""
_OF_PAIRS, _OF_COMBINATIONS = (0.15, 0.05), (0.10, 0.03)
"""Shares that are held out, and that validate."""
_SALT = "coding-framework modules 1"
_PER_FAMILY = {
    **dict.fromkeys(FUSED_FAMILIES, 500),
    **{"linear_fused": 800, "conv2d_fused": 800, "conv_transpose3d_fused": 400},
}
"""Training tasks of a family of level 2."""
MOST_SPARE = 1200
"""Tasks of a family beyond the catalogue: so many are known to be none of KernelBench's."""


def share(text: str, salt: str = _SALT) -> float:
    """A number in [0, 1) that the text alone decides."""
    digest = hashlib.sha256(f"{salt}|{text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


@cache
def excluded_keys() -> frozenset[str]:
    """Keys of drafts whose function KernelBench has."""
    return frozenset(EXCLUDED_PATH.read_text(encoding="utf-8").splitlines())


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


@lru_cache(maxsize=1)
def all_drafts() -> tuple[ModuleDraft, ...]:
    """The catalogue: level 1, then level 2. About a second, once a process."""
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


def spare_drafts(each: int) -> list[ModuleDraft]:
    """More training tasks of every family of level 2 than the catalogue has, the families in turn:
    `each` are drawn of a family, and those whose output hardly varies are left out. They can be
    shown to SFT; no list names them, and `find_draft` does not know them. Raises UsageError for
    more than were compared with KernelBench."""
    if each > MOST_SPARE:
        raise UsageError(
            f"there are {MOST_SPARE} spare modules of a family: ask for at most so many"
        )
    more = []
    for family in FUSED_FAMILIES:
        start = _PER_FAMILY[family]
        training = (draft for draft in _distinct(family) if draft.part == "train")
        more.append(islice(training, start, start + each))
    drawn = (draft for drafts in zip(*more, strict=True) for draft in drafts)
    return [draft for draft in drawn if draft.key not in constant_keys()]


def _limited(drafts: list[ModuleDraft], held_out: int, validation: int) -> list[ModuleDraft]:
    """The training tasks, and so many of the others, drawn by their names: the rest is dropped."""
    most = {"held_out": held_out, "validation": validation}
    kept = set()
    for part, count in most.items():
        members = sorted((d.name for d in drafts if d.part == part), key=share)
        kept |= set(members[:count])
    return [d for d in drafts if d.part == "train" or d.name in kept]


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


def family_names() -> tuple[str, ...]:
    """All families of module tasks."""
    return tuple(dict.fromkeys(draft.family for draft in all_drafts()))
