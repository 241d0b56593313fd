"""Numbers of PTX as bit patterns: floats in exact arithmetic, rounded once; integers of any width.

NAN stands for any NaN. Source: NVIDIA, Parallel Thread Execution ISA 9.0, chapter 5.2; IEEE 754.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

NAN = -1
"""Result: some NaN."""
FORMATS = {"f16": (11, 5), "bf16": (8, 8), "f32": (24, 8), "f64": (53, 11), "tf32": (11, 8)}
"""Digits of the significand (the hidden one counted) and bits of the exponent."""
DIRECTIONS = ("rn", "rz", "rm", "rp")


def width(kind: str) -> int:
    """Bits of a type; of a predicate, 1."""
    if kind == "pred":
        return 1
    if kind == "tf32":
        return 32
    return int(kind.lstrip("bfsu").replace("x2", "")) * (2 if kind.endswith("x2") else 1)


def is_float(kind: str) -> bool:
    return kind in FORMATS


# --- floats as (sign, exact value) ----------------------------------------------------------------


@dataclass(frozen=True)
class Float:
    """A number, an infinity or a NaN. `value` is never negative; `negative` is the sign."""

    negative: bool
    value: Fraction | None = None
    infinite: bool = False

    @property
    def nan(self) -> bool:
        return self.value is None and not self.infinite

    @property
    def exact(self) -> Fraction:
        assert self.value is not None
        return -self.value if self.negative else self.value

    @property
    def zero(self) -> bool:
        return self.value == 0


NOT_A_NUMBER = Float(False)


def decode(kind: str, bits: int) -> Float:
    digits, exponent_bits = FORMATS[kind]
    stored = digits - 1
    bias = (1 << (exponent_bits - 1)) - 1
    negative = bool(bits >> (stored + exponent_bits) & 1)
    exponent, fraction = bits >> stored & ((1 << exponent_bits) - 1), bits & ((1 << stored) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return Float(negative, None, fraction == 0) if fraction == 0 else NOT_A_NUMBER
    if exponent == 0:
        return Float(negative, Fraction(fraction) * Fraction(2) ** (1 - bias - stored))
    whole = fraction | 1 << stored
    return Float(negative, Fraction(whole) * Fraction(2) ** (exponent - bias - stored))


def encode(kind: str, number: Float, direction: str = "rn") -> int:
    """Bits of the number after one rounding; rna: ties away from zero."""
    if number.nan:
        return NAN
    digits, exponent_bits = FORMATS[kind]
    stored, bias = digits - 1, (1 << (exponent_bits - 1)) - 1
    sign = int(number.negative) << (stored + exponent_bits)
    infinity = ((1 << exponent_bits) - 1) << stored
    if number.infinite:
        return sign | infinity
    value = number.value
    assert value is not None
    if value == 0:
        return sign
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > value
    exponent = max(exponent, 1 - bias)
    whole, rest = divmod(value / Fraction(2) ** (exponent - stored), 1)
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rna": rest >= Fraction(1, 2),
        "rz": False,
        "rm": rest > 0 and number.negative,
        "rp": rest > 0 and not number.negative,
    }[direction]
    whole += up
    if whole >> digits:
        whole, exponent = whole >> 1, exponent + 1
    if exponent > bias:
        away = direction in ("rn", "rna") or direction == ("rm" if number.negative else "rp")
        return sign | (infinity if away else infinity - 1)
    if whole >> stored:
        return sign | (exponent + bias) << stored | (whole & ((1 << stored) - 1))
    return sign | whole


def flush(kind: str, number: Float) -> Float:
    """A subnormal becomes a zero of its sign."""
    bias = (1 << (FORMATS[kind][1] - 1)) - 1
    small = number.value is not None and number.value < Fraction(2) ** (1 - bias)
    return Float(number.negative, Fraction(0)) if small else number


def signed(value: Fraction, *, negative_zero: bool = False) -> Float:
    return Float(value < 0 or (value == 0 and negative_zero), abs(value))


def add(a: Float, b: Float, direction: str) -> Float:
    if a.nan or b.nan or (a.infinite and b.infinite and a.negative != b.negative):
        return NOT_A_NUMBER
    if a.infinite or b.infinite:
        return a if a.infinite else b
    total = a.exact + b.exact
    if total == 0 and a.negative == b.negative and a.zero:
        return a
    return signed(total, negative_zero=direction == "rm")


def multiply(a: Float, b: Float) -> Float:
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.infinite and b.zero) or (b.infinite and a.zero):
        return NOT_A_NUMBER
    if a.infinite or b.infinite:
        return Float(negative, None, True)
    assert a.value is not None
    assert b.value is not None
    return Float(negative, a.value * b.value)


def divide(a: Float, b: Float) -> Float:
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.infinite and b.infinite) or (a.zero and b.zero):
        return NOT_A_NUMBER
    if a.infinite or b.zero:
        return Float(negative, None, True)
    if b.infinite:
        return Float(negative, Fraction(0))
    assert a.value is not None
    assert b.value is not None
    return Float(negative, a.value / b.value)


def root(a: Float) -> Float:
    """The square root, exact or with enough digits and a last one that says it is not."""
    if a.nan or (a.negative and not a.zero):
        return NOT_A_NUMBER
    if a.infinite or a.zero:
        return a
    assert a.value is not None
    shift = 4096
    scaled = a.value * 4**shift
    found = math.isqrt(scaled.numerator // scaled.denominator)
    exact = found * found == scaled
    return Float(False, Fraction(2 * found + (not exact), 2 * 2**shift))


def negated(a: Float) -> Float:
    return NOT_A_NUMBER if a.nan else Float(not a.negative, a.value, a.infinite)


def less(a: Float, b: Float) -> bool:
    """a < b; -0 is not below +0."""
    if a.nan or b.nan:
        return False
    key = [
        (math.inf if x.infinite else x.value) * (-1 if x.negative else 1)  # type: ignore[operator]
        for x in (a, b)
    ]
    return bool(key[0] < key[1])


def minimum(a: Float, b: Float, *, largest: bool, keeps_nan: bool) -> Float:
    if a.nan or b.nan:
        return NOT_A_NUMBER if keeps_nan or (a.nan and b.nan) else (b if a.nan else a)
    if a.zero and b.zero:  # -0 counts as smaller
        return a if a.negative != largest else b
    return a if less(b, a) == largest else b


def integral(a: Float, way: str) -> Float:
    """Rounded to a whole number; its sign stays."""
    if a.value is None:
        return a
    exact = a.exact
    whole = {"rni": round(exact), "rzi": int(exact), "rmi": math.floor(exact),
             "rpi": math.ceil(exact)}[way]  # fmt: skip
    return Float(a.negative, Fraction(abs(whole)))


# --- integers -------------------------------------------------------------------------------------


def as_int(kind: str, bits: int) -> int:
    """The number that a pattern means; unsigned but for s-types."""
    bits &= (1 << width(kind)) - 1
    return bits - (1 << width(kind)) if kind[0] == "s" and bits >> (width(kind) - 1) else bits


def as_bits(kind: str, value: int) -> int:
    return value & ((1 << width(kind)) - 1)


def clamp_int(kind: str, value: int) -> int:
    bits = width(kind)
    low, high = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    )
    return max(low, min(high, value))


def truncated_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# --- what to try ----------------------------------------------------------------------------------


def edges(kind: str) -> list[int]:
    """Patterns at which an instruction on that type is likely to be wrong."""
    if kind == "pred":
        return [0, 1]
    if kind.endswith("x2"):
        half, bits = edges(kind.removesuffix("x2")), width(kind) // 2
        return [a | half[-1 - i] << bits for i, a in enumerate(half)]
    bits = width(kind)
    if is_float(kind):
        digits, exponent_bits = FORMATS[kind]
        stored, bias = digits - 1, (1 << (exponent_bits - 1)) - 1
        infinity, one = ((1 << exponent_bits) - 1) << stored, bias << stored
        middle = 1 << (stored - 1)
        plain = [0, 1, (1 << stored) - 1, 1 << stored, one, one + 1, one - 1, one | middle,
                 infinity - 1, infinity, infinity | middle]  # fmt: skip
        whole = [(bias + stored) << stored | 1, (bias + stored - 1) << stored | 1,
                 (bias + min(31, bias)) << stored,
                 (bias + 1) << stored | 3 << (stored - 3)]  # fmt: skip
        return [v | s << (bits - 1) for v in (*plain, *whole) for s in (0, 1)]
    top = 1 << (bits - 1)
    found = [0, 1, 2, 3, 5, 7, 8, 15, 31, 32, 33, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2]
    return [v & (2 * top - 1) for v in found]
