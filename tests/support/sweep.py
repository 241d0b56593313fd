"""Long sweeps: `make test` runs a part of the cases, spread over all of them; `make test-all` runs
every case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def sweep(cases: Sequence[Any], every: int, name: Callable[[Any], str]) -> list[Any]:
    """The cases as parameters, each with its name. All but each `every`-th are marked `slow`."""
    return [
        pytest.param(case, id=name(case), marks=() if i % every == 0 else pytest.mark.slow)
        for i, case in enumerate(cases)
    ]
