"""How many times faster than naive each level of kernel was on a GPU, at real sizes.

`measured_speeds.json` is written by `benchmarks/pairs_speed.py --ship RESULT`, and names that
result as its source: the median over the measured tasks of a family, by level.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

MEASURED_PATH = Path(__file__).with_name("measured_speeds.json")
_NAIVE = MappingProxyType({"naive": 1.0})


@lru_cache(maxsize=1)
def _measured() -> dict[str, dict[str, float]]:
    speeds: dict[str, dict[str, float]] = json.loads(MEASURED_PATH.read_text())["speeds"]
    return {family: {**_NAIVE, **levels} for family, levels in speeds.items()}


def measured_speeds(family: str) -> Mapping[str, float]:
    """Level -> median speedup over the family's naive kernels, which have 1; of a family that was
    not measured, those alone."""
    return _measured().get(family, _NAIVE)
