"""Races between the operations of a plan: which bytes each of them touches, and what orders them.

races.c notes who last read and wrote every byte, with the time; here each operation has a span of
time, and an access that meets one of an operation which nothing orders before its own is a race.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

_Words = ctypes.Array[ctypes.c_uint64]


@dataclass(slots=True)
class StreamWatch:
    """The operations of one plan that is watched."""

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Number of an operation to its time: after the first tick, up to the second."""
    number: int = 0
    unordered: tuple[int, ...] = ()

    def expect(self, number: int, unordered: Sequence[int]) -> None:
        """The operation that comes next, and the earlier ones that nothing orders before it."""
        self.number, self.unordered = number, tuple(unordered)

    def note(self, first: int, last: int) -> None:
        """The time of (a part of) the operation."""
        start, _ = self.spans.get(self.number, (first, last))
        self.spans[self.number] = (start, last)

    def words(self) -> _Words:
        """The spans of the operations that are not ordered before this one, for races.c."""
        spans = [self.spans[n] for n in self.unordered if n in self.spans]
        flat = [tick for span in spans for tick in span]
        return (ctypes.c_uint64 * max(len(flat), 1))(*flat)

    @property
    def since(self) -> int | None:
        """The first tick of an operation that is not ordered before this one."""
        return min((self.spans[n][0] + 1 for n in self.unordered if n in self.spans), default=None)

    @property
    def count(self) -> int:
        return sum(n in self.spans for n in self.unordered)

    def operation_at(self, tick: int) -> int | None:
        """The number of the operation that this time belongs to."""
        return next((n for n, (a, b) in self.spans.items() if a < tick <= b), None)
