"""Intervals of values, and the record of an elementwise operation (the rows: `op_table`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["math", "activation", "scalar", "operand"]
Operand = Literal["full", "row", "col", "scalar"]

LIMIT = 1e6
"""Largest magnitude that a value may reach: far from float32's overflow, also when squared."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a value lies: always in [low, high], typically in [typical_low, typical_high].

    They differ after a reduction: the mean of 500 values in [-4, 4] can be 4, and never is.
    """

    low: float
    high: float
    typical_low: float
    typical_high: float

    @classmethod
    def of(cls, low: float, high: float) -> Interval:
        """An interval all of which is typical."""
        return cls(low, high, low, high)


Constants = tuple[float, ...]
Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Op:
    """One elementwise operation. Templates: {v} value, {a} and {b} constants, {o} operand."""

    kind: Kind
    name: str
    torch: str
    span: Callable[[Bounds, Constants, Bounds], Bounds]
    """Range of the result from the ranges of value and operand."""
    domain: Bounds = (-LIMIT, LIMIT)
    """Where the operation is defined and well conditioned."""
    live: Bounds | None = None
    """The typical values must reach into this range on both sides' terms (see `bites`)."""
    atoms: tuple[str, ...] = ()
    """Its meaning in the atoms of `canonical`; () stands for its own name."""
    constants: tuple[Constants, ...] = ((),)
    """Choices that the catalogue draws from; names may carry any others."""
    operand_range: Bounds = (-2.0, 2.0)
    spoken: str = ""
    """In mathematical notation, where that is not what PyTorch writes."""

    @property
    def said(self) -> str:
        """For descriptions."""
        return self.spoken or self.torch.removeprefix("torch.").removeprefix("F.")
