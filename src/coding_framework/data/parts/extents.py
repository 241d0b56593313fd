"""Numbers that differ from shape set to shape set, as expressions of extents that are known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

from coding_framework.data.lookup import real_number
from coding_framework.data.lower.sizes import in_c

_MOST_FACTOR = 64
_MOST_FACTORS = 4
_MOST_SHIFT = 16
_FARTHEST = 1e100
"""Numbers beyond it, infinities and NaN are no expression of extents."""
_SHARES = [(share, more) for share in range(2, 9) for more in range(share)]
"""What is rounded down, or up: (extent + more) / share."""


@dataclass(frozen=True, slots=True)
class Known:
    """An extent that a program can ask for: `x.size(1)`, and what it is at each shape set."""

    text: str
    values: tuple[int, ...]


def whole(values: Sequence[int], known: Sequence[Known]) -> str | None:
    """C++ of a number; None where its origin is not found. The simplest is taken: a number; an
    extent or a product of extents, times a number, through one or both, more or less a number; one
    through an extent; a root (the side of a square of tokens); a sum or a difference of two, more
    or less a number."""
    values = tuple(values)
    if len(set(values)) == 1:
        return str(values[0])
    found = _distinct(known)
    for one in found:
        if one.values == values:
            return one.text
    products = list(_products(found))
    for one in found:
        for share, more in _SHARES:
            if all((k + more) // share == v for v, k in zip(values, one.values, strict=True)):
                return f"({_plus(one.text, more)} / {share})"
    for group in (found, products):
        for one in group:
            if (text := _linear(values, one)) is not None:
                return text
    every = (*found, *products)
    for one in every:
        for other in found:
            if all(v * d == n for v, d, n in zip(values, other.values, one.values, strict=True)):
                return f"({one.text} / {other.text})"
    for one in every:
        if all(v > 0 and v * v == n for v, n in zip(values, one.values, strict=True)):
            return f"(int64_t)std::llround(std::sqrt((double){one.text}))"
    for one in every:
        for other in every:
            for sign, times in (("-", -1), ("+", 1)):
                rest = {
                    v - a - times * b
                    for v, a, b in zip(values, one.values, other.values, strict=True)
                }
                if len(rest) == 1 and abs(more := rest.pop()) <= _MOST_SHIFT:
                    return _plus(f"({one.text} {sign} {other.text})", more)
    return None


def fraction(values: Sequence[float], known: Sequence[Known]) -> str | None:
    """The same for one with a fraction, as `lookup.real_number` finds it."""
    import sympy

    if len(set(values)) == 1:
        return repr(float(values[0]))
    if not all(v == 0.0 or 1 / _FARTHEST < abs(v) < _FARTHEST for v in values):
        return None
    axes: dict[tuple[float, ...], Any] = {
        one.values: sympy.Symbol(one.text) for one in _distinct(known)
    }
    found = real_number(axes, values)
    return None if found is None else in_c(found, whole=False)


def _distinct(known: Sequence[Known]) -> list[Known]:
    """Those that differ in their values, the first of each, without what is everywhere the same."""
    found: dict[tuple[int, ...], Known] = {}
    for one in known:
        if len(set(one.values)) > 1:
            found.setdefault(one.values, one)
    return list(found.values())


def _linear(values: tuple[int, ...], one: Known) -> str | None:
    """A multiple or a whole part of an extent, more or less a number."""
    pairs = list(zip(values, one.values, strict=True))
    (v, k), (w, m) = pairs[0], next(pair for pair in pairs if pair[1] != pairs[0][1])
    if v == w:
        return None
    factor, rest = divmod(v - w, k - m)
    if rest == 0 and 0 < factor <= _MOST_FACTOR:
        more = v - factor * k
        if abs(more) <= _MOST_SHIFT and all(a == factor * b + more for a, b in pairs):
            return _plus(one.text if factor == 1 else f"({factor} * {one.text})", more)
    share, rest = divmod(k - m, v - w)
    if rest == 0 and 1 < share <= _MOST_FACTOR:
        more = v - k // share
        if abs(more) <= _MOST_SHIFT and all(a == b // share + more for a, b in pairs):
            return _plus(f"({one.text} / {share})", more)
    part = Fraction(v - w, k - m)
    if 0 < part.numerator <= _MOST_FACTOR and part.denominator <= _MOST_FACTOR and all(
        a * part.denominator == b * part.numerator for a, b in pairs
    ):  # fmt: skip
        return f"({part.numerator} * {one.text} / {part.denominator})"
    return None


def _plus(text: str, more: int) -> str:
    return text if more == 0 else f"({text} {'+' if more > 0 else '-'} {abs(more)})"


def _products(found: Sequence[Known]) -> Iterator[Known]:
    for count in range(2, _MOST_FACTORS + 1):
        for chosen in combinations_with_replacement(found[:8], count):
            yield Known(
                f"({' * '.join(one.text for one in chosen)})",
                tuple(map(math.prod, zip(*(one.values for one in chosen), strict=True))),
            )
