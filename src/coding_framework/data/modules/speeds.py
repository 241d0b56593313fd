"""How fast the kernels of a family and level are over PyTorch eager, at real sizes on a GPU.

`level_speeds.json` ships: `benchmarks/module_tasks.py --speeds FILE` writes it from receipts, and
says where they were measured. It outlives them: a kernel whose text changed has no receipt until it
is judged anew, and its family is as fast as before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from coding_framework.data.modules.catalog import find_draft
from coding_framework.data.synthesis.receipts import KernelReceipt
from coding_framework.paths import write_json_atomic

SHIPPED_PATH = Path(__file__).with_name("level_speeds.json")
ENOUGH = 8
"""Kernels of a family and level whose receipts say more than the table that ships."""


class LevelSpeed(NamedTuple):
    """How fast a family's kernels of a level are, over eager."""

    median: float
    at_least_eager: float
    """Their share."""


Speeds = Mapping[tuple[str, str], LevelSpeed]
"""By (family, level)."""


def measured_speed(receipt: KernelReceipt | None) -> float | None:
    """Speed over eager; None where no GPU measured it."""
    timing = receipt.verdict.timing if receipt is not None else None
    return timing.speedup if timing is not None and not timing.modelled else None


def level_speeds(receipts: Iterable[KernelReceipt], shipped: Speeds | None = None) -> Speeds:
    """By family and level: what receipts of at least `ENOUGH` correct kernels say, else what is
    shipped. shipped: by default the table of the package."""
    known = dict(shipped_speeds() if shipped is None else shipped)
    for place, values in _by_place(receipts).items():
        if len(values) >= ENOUGH:
            known[place] = _told(values)
    return known


def shipped_speeds() -> Speeds:
    """The table of the package."""
    families: dict[str, dict[str, list[float]]] = json.loads(SHIPPED_PATH.read_text())["speeds"]
    return {
        (family, level): LevelSpeed(*row[:2])
        for family, levels in families.items()
        for level, row in levels.items()
    }


def write_speeds(receipts: Iterable[KernelReceipt], path: Path, source: Mapping[str, Any]) -> None:
    """The table of what was measured: median, share as fast as eager, number of kernels."""
    families: dict[str, dict[str, list[float]]] = {}
    for (family, level), values in sorted(_by_place(receipts).items()):
        middle, share = _told(values)
        families.setdefault(family, {})[level] = [round(middle, 3), round(share, 3), len(values)]
    write_json_atomic(path, {**source, "speeds": families})


def _told(values: list[float]) -> LevelSpeed:
    return LevelSpeed(median(values), sum(v >= 1.0 for v in values) / len(values))


def _by_place(receipts: Iterable[KernelReceipt]) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for receipt in receipts:
        draft, speed = find_draft(receipt.task), measured_speed(receipt)
        if draft is not None and speed is not None and receipt.verdict.correct:
            found.setdefault((draft.family, receipt.level), []).append(speed)
    return found
