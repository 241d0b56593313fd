"""Exact references: numbers as fractions, rounded once in a given direction."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

_FORMATS = {np.float16: (11, -24, 15), np.float32: (24, -149, 127), np.float64: (53, -1074, 1023)}
"""Digits, exponent of the smallest subnormal, largest exponent."""


def rounded(value: Fraction, kind: Any, direction: str) -> Any:
    """`value` in floating-point type `kind`; direction rn, rz, rm or rp."""
    digits, smallest, largest = _FORMATS[kind]
    if value == 0:
        return kind(0)
    negative, value = value < 0, abs(value)
    exponent = math.frexp(value.numerator)[1] - math.frexp(value.denominator)[1] if (
        value.numerator < 2**1000 and value.denominator < 2**1000
    ) else value.numerator.bit_length() - value.denominator.bit_length()  # fmt: skip
    while Fraction(2) ** exponent > value:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= value:
        exponent += 1
    unit = Fraction(2) ** max(exponent - digits + 1, smallest)
    whole, rest = divmod(value, unit)
    half = unit / 2
    up = {
        "rn": rest > half or (rest == half and whole % 2 == 1),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[direction]
    whole += up
    if whole * unit >= Fraction(2) ** (largest + 1):
        away = direction == "rn" or (direction == "rm" and negative) or (
            direction == "rp" and not negative
        )  # fmt: skip
        result = math.inf if away else float(np.finfo(kind).max)
    else:
        result = float(whole * unit)
    return kind(-result if negative else result)


def wrapped(value: int, kind: Any) -> Any:
    """`value` modulo the width of an integer type."""
    info = np.iinfo(kind)
    bits = info.bits
    value &= (1 << bits) - 1
    return kind(value - (1 << bits) if info.min < 0 and value >> (bits - 1) else value)
