"""Parts of which nothing was right in smaller ones, with what each made beside its operation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from coding_framework.data.parts.calls import PartsError, Trace
from coding_framework.data.parts.join import require_joinable
from coding_framework.data.parts.pieces import (
    LIKES,
    Part,
    counting,
    inlined,
    literals,
    parted,
)


def finer(trace: Trace, parts: Sequence[Part]) -> list[Part]:
    """The trace in parts again, in which each operation of these is one, and what they make beside
    it (whole numbers, booleans, constants of the shape) is given to them where it can be. Raises
    PartsError where the parts could not be joined."""
    alone = frozenset(value for part in parts for value in part.makes)
    with suppress(PartsError, ValueError):
        found = parted(trace, alone, _made_beside(trace, parts))
        require_joinable(trace, found)
        return found
    found = parted(trace, alone)
    require_joinable(trace, found)
    return found


def _made_beside(trace: Trace, parts: Sequence[Part]) -> frozenset[int]:
    """What these parts make themselves, though another could, of tensors that are given or of
    `torch.arange`, which the host code makes."""
    own, written = inlined(trace), literals(trace)
    known: dict[int, bool] = {}

    def can_be(number: int) -> bool:
        if number not in own:
            return True
        if number not in known:
            maker = trace.maker(number)
            known[number] = (
                maker is not None
                and "complex" not in trace.values[number].dtype
                and number not in written
                and maker.kind != "write"
                and maker.name not in LIKES
                and (
                    any(map(can_be, maker.refs))
                    if maker.refs
                    else counting(trace, number) is not None
                )
            )
        return known[number]

    found, wanted = set[int](), [ref for part in parts for call in part.calls for ref in call.refs]
    while wanted:
        number = wanted.pop()
        if number in own and number not in found and can_be(number):
            found.add(number)
            maker = trace.maker(number)
            wanted += maker.refs if maker is not None else ()
    return frozenset(found)
