"""Numbers that differ from shape set to shape set, as expressions of extents that are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement

_MOST_FACTOR = 64
_MOST_FACTORS = 4
_MOST_SHIFT = 16
_MOST_POWER = 8.0
_FARTHEST = 1e100
"""Numbers beyond it, infinities and NaN are no expression of extents."""
_SHARES = [(share, more) for share in range(2, 9) for more in range(share)]
"""What is rounded down, or up: (extent + more) / share."""


@dataclass(frozen=True, slots=True)
class Known:
    """An extent that a program can ask for: `x.size(1)`, and what it is at each shape set."""

    text: str
    values: tuple[int, ...]


def whole(values: Sequence[int], known: Sequence[Known], *, of_one: bool = False) -> str | None:
    """C++ of a number; None where its origin is not found. The simplest is taken: a number; an
    extent or a product of extents, times a number, through one or both, more or less a number; one
    through an extent; a root (the side of a square of tokens); a sum or a difference of two, more
    or less a number. of_one: no such sums."""
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
    for one in () if of_one else every:
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
    """The same for one with a fraction: a whole one and a number, its inverse, its root or its
    logarithm, or the inverse of these; a number more or less a multiple of one; a number times a
    power of one; a number to the power of one, or what that leaves of 1 (`1 - beta ** step`)."""
    if len(set(values)) == 1:
        return repr(float(values[0]))
    if not all(v == 0.0 or 1 / _FARTHEST < abs(v) < _FARTHEST for v in values):
        return None
    rest = values[0] - math.floor(values[0])
    floors = [math.floor(v) for v in values]
    if all(math.isclose(v - n, rest, abs_tol=1e-9) for v, n in zip(values, floors, strict=True)):
        found = whole(floors, known, of_one=True)
        if found is not None:
            return f"(double)({found}) + {rest!r}" if rest else f"(double)({found})"
    for text, inverse, form in _FORMS:
        inner = [round(inverse(v)) if v > 0 else 0 for v in values]
        if all(n > 0 and math.isclose(v, form(n)) for v, n in zip(values, inner, strict=True)):
            found = whole(inner, known, of_one=True)
            if found is not None:
                return text.format(f"(double)({found})")
    return _power(values, known) or _exponential(values, known) or _times(values, known)


def _power(values: Sequence[float], known: Sequence[Known]) -> str | None:
    """A number times a power of an extent, or of one more or less: `maturity / steps`, `1 / (bins -
    1)`, `step ** -0.8`. A power that is no half needs three different extents."""
    if len({v > 0 for v in values}) > 1 or 0.0 in values:
        return None
    found = _distinct(known)
    for one in (*found, *_products(found)):
        for more in (0, -1, 1):
            bases = [n + more for n in one.values]
            least, most = (bases.index(end(bases)) for end in (min, max))
            if bases[least] < 1:
                continue
            span = math.log(abs(values[most])) - math.log(abs(values[least]))
            power = span / math.log(bases[most] / bases[least])
            if abs(power) > _MOST_POWER:
                continue
            half = round(2 * power) / 2
            if math.isclose(power, half):
                power = half
            elif len(set(bases)) < 3:
                continue
            power = round(power, 10)
            factor = float(f"{values[most] / bases[most] ** power:.12g}")
            made = [factor * base**power for base in bases]
            if power and all(map(math.isclose, made, values)):
                base = f"(double)({_plus(one.text, more)})"
                if abs(power) == 1.0:
                    return f"{factor!r} {'*' if power > 0 else '/'} {base}"
                return f"{factor!r} * std::pow({base}, {power!r})"
    return None


def _times(values: Sequence[float], known: Sequence[Known]) -> str | None:
    """A number more or less a multiple of an extent, both of a few digits: `1 - 0.001 * bins`."""
    for one in _distinct(known):
        least, most = (one.values.index(end(one.values)) for end in (min, max))
        step = (values[most] - values[least]) / (one.values[most] - one.values[least])
        factor = float(f"{step:.3g}")
        start = float(f"{values[least] - factor * one.values[least]:.6g}")
        made = [start + factor * n for n in one.values]
        if factor and all(map(math.isclose, made, values)):
            return f"{start!r} + {factor!r} * (double){one.text}"
    return None


def _exponential(values: Sequence[float], known: Sequence[Known]) -> str | None:
    for form, left in (("{}", values), ("1.0 - {}", [1.0 - v for v in values])):
        if any(v <= 0.0 for v in left):
            continue
        for one in _distinct(known):
            if min(one.values) < 1:
                continue
            most = max(range(len(left)), key=lambda n: abs(math.log(left[n])))
            base = float(f"{left[most] ** (1 / one.values[most]):.10g}")
            if max(one.values) * abs(math.log(base)) > math.log(_FARTHEST):
                continue
            made = [base**n for n in one.values]
            if base != 1.0 and all(map(math.isclose, made, left)):
                return form.format(f"std::pow({base!r}, (double){one.text})")
    return None


def _over_log(n: int) -> float:
    return 1 / math.log(n) if n > 1 else math.inf


_LARGEST_LOG = 40.0
_FORMS: tuple[tuple[str, Callable[[float], float], Callable[[int], float]], ...] = (
    ("1.0 / {}", lambda v: 1 / v, lambda n: 1 / n),
    ("1.0 / std::sqrt({})", lambda v: v**-2, lambda n: float(n**-0.5)),
    ("std::sqrt({})", lambda v: v * v, lambda n: float(n**0.5)),
    ("std::log({})", lambda v: math.exp(min(v, _LARGEST_LOG)), lambda n: math.log(n)),
    ("1.0 / std::log({})", lambda v: math.exp(min(1 / v, _LARGEST_LOG)), _over_log),
)
"""C++ of a number made of a whole one, how that is found, and back."""


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
