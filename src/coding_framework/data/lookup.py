"""What size a number is: the expression of the axes and of the constructor's numbers that is worth
it at every shape set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any


def whole_number(axes: Mapping[tuple[int, ...], Any], actual: tuple[int, ...]) -> Any:
    """The simplest expression of one axis or two that is worth these numbers; None: there is none.

    axes: numbers at each shape set -> the symbol that has them.
    """
    floor = _floor_division()
    if actual in axes:
        return axes[actual]
    own = [(symbol, list(zip(actual, values, strict=True))) for values, symbol in axes.items()
           if len(set(values)) > 1]  # fmt: skip
    for symbol, pairs in own:
        value, length = pairs[0]
        if length and value % length == 0 and all(a == v * (value // length) for a, v in pairs):
            return symbol * (value // length)
    for rounded_up in (False, True):
        for symbol, pairs in own:
            for by in _divisors(pairs[0]):
                more = by - 1 if rounded_up else 0
                if all(a == (v + more) // by for a, v in pairs):
                    return floor(symbol + more, by)
    for symbol, pairs in own:
        if len(apart := {a - v for a, v in pairs}) == 1:
            return symbol + apart.pop()
    for symbol, pairs in own:
        for by in _divisors(pairs[0]):
            for more in (sign * m for m in range(1, 13) for sign in (-1, 1)):
                if all(a == (v + more) // by for a, v in pairs):
                    return floor(symbol + more, by)
    for symbol, pairs in own:
        if all(v == a * a for a, v in pairs):
            return _root(symbol)
    for values, symbol in axes.items():
        for others, other in axes.items():
            triples = list(zip(actual, values, others, strict=True))
            if all(a == v * o for a, v, o in triples):
                return symbol * other
            if all(o and a == v // o and v % o == 0 for a, v, o in triples):
                return floor(symbol, other)
            if all(a == v + o for a, v, o in triples):
                return symbol + other
    return None


def _divisors(pair: tuple[int, int]) -> range:
    """By what a length may have been divided, to be a number."""
    value, length = pair
    by = round(length / value) if value else 0
    return range(max(2, by - 2), max(2, by + 3))


def real_number(axes: Mapping[tuple[float, ...], Any], actual: Sequence[Any]) -> Any:
    """The same for numbers that are not whole: a factor times a function of one axis."""
    import sympy

    functions: Sequence[tuple[Callable[[float], float], Callable[[Any], Any]]] = (
        (lambda v: v, lambda s: s),
        (lambda v: 1 / v, lambda s: 1 / s),
        (math.sqrt, sympy.sqrt),
        (lambda v: 1 / math.sqrt(v), lambda s: 1 / sympy.sqrt(s)),
        (math.log, sympy.log),
        (lambda v: math.log(v - 1), lambda s: sympy.log(s - 1)),
        (lambda v: 1 / math.log(v - 1), lambda s: 1 / sympy.log(s - 1)),
        (lambda v: v**-0.25, lambda s: s ** sympy.Rational(-1, 4)),
        (lambda v: v**1.5, lambda s: s ** sympy.Rational(3, 2)),
        (lambda v: 1 / (v - 1), lambda s: 1 / (s - 1)),
        (lambda v: 1 / (1 - v), lambda s: 1 / (1 - s)),
        (lambda v: 1 - v, lambda s: 1 - s),
        (lambda v: v - 1, lambda s: s - 1),
    )
    products = {
        tuple(v * w for v, w in zip(one, two, strict=True)): symbol * other
        for one, symbol in axes.items()
        for two, other in axes.items()
    }
    for values, symbol in [*axes.items(), *products.items()]:
        if len(set(values)) == 1:
            continue
        for number, expression in functions:
            try:
                worth = [number(v) for v in values]
            except (ValueError, ZeroDivisionError):
                continue
            if not worth[0] or isinstance(worth[0], complex):
                continue
            factor = float(actual[0]) / worth[0]
            if all(
                math.isclose(a, factor * w, rel_tol=1e-9)
                for a, w in zip(actual, worth, strict=True)
            ):
                plain = math.isclose(factor, 1.0, rel_tol=1e-12)
                made = expression(symbol)
                return made if plain else made * sympy.Float(factor, 17)
    for values, symbol in axes.items():
        pairs = list(zip(map(float, values), map(float, actual), strict=True))
        found = _line(symbol, pairs) or _power(symbol, pairs)
        if found is not None:
            return found
    return None


Pairs = Sequence[tuple[float, float]]
"""(what a symbol is worth, the number) at each shape set."""


def _line(symbol: Any, pairs: Pairs) -> Any:
    """a + b * symbol. Two numbers alone have always one, so that either a or b must be a short
    one."""
    import sympy

    first = pairs[0]
    other = next((p for p in pairs if p[0] != first[0]), None)
    if other is None:
        return None
    slope = round((other[1] - first[1]) / (other[0] - first[0]), 12)
    start = round(first[1] - slope * first[0], 12)
    short = len({v for v, _ in pairs}) > 2 or min(len(repr(slope)), len(repr(start))) < 8
    if not slope or not short or not _close(pairs, lambda v: start + slope * v):
        return None
    return sympy.Float(start, 17) + sympy.Float(slope, 17) * symbol


def _power(symbol: Any, pairs: Pairs) -> Any:
    """symbol ** p or p ** symbol, or 1 minus that: running means of an optimizer's step. Two
    numbers alone have always one, so that p must be a short number, or the exponent a half."""
    import sympy

    if len({v for v, _ in pairs}) < 2 or any(v <= 0 for v, _ in pairs):
        return None
    for turned in (False, True):
        own = [(v, 1 - a if turned else a) for v, a in pairs]
        if any(a <= 0 for _, a in own):
            continue
        value, number = own[0]
        base = round(number ** (1 / value), 9)
        exponent = round(math.log(number) / math.log(value), 9) if value != 1 else 0.0
        found = None
        several = len({v for v, _ in pairs}) > 2
        if (several or len(repr(base)) < 8) and _close(own, partial(pow, base)):
            found = sympy.Pow(sympy.Float(base, 17), symbol)
        elif (
            exponent
            and (several or (2 * exponent).is_integer())
            and _close(own, partial(pow, exp=exponent))
        ):
            found = symbol ** sympy.Float(exponent, 17)
        if found is not None:
            return 1 - found if turned else found
    return None


def _close(pairs: Pairs, function: Callable[[float], float]) -> bool:
    try:
        return all(math.isclose(a, function(v), rel_tol=1e-9) for v, a in pairs)
    except OverflowError:
        return False


def _root(symbol: Any) -> Any:
    """The whole root of a square."""
    import sympy
    from torch.utils._sympy.functions import FloorToInt

    return FloorToInt(sympy.sqrt(symbol))


def _floor_division() -> Any:
    from torch.utils._sympy.functions import FloorDiv

    return FloorDiv
