"""Numbers of several shape sets as expressions of extents."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from coding_framework.data.parts.extents import Known, fraction, whole

pytestmark = pytest.mark.unit
N = Known("x.size(0)", (8, 3, 2))
H = Known("x.size(1)", (128, 126, 16))
W = Known("x.size(2)", (64, 48, 20))
ONE = Known("x.size(3)", (1, 1, 1))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((4, 4, 4), "4"),
        ((8, 3, 2), "x.size(0)"),
        ((24, 9, 6), "(3 * x.size(0))"),
        ((64, 63, 8), "(x.size(1) / 2)"),
        ((129, 127, 17), "(x.size(1) + 1)"),
        ((4, 2, 1), "((x.size(0) + 1) / 2)"),
        ((257, 253, 33), "((2 * x.size(1)) + 1)"),
        ((1024, 378, 32), "(x.size(0) * x.size(1))"),
        ((65536, 18144, 640), "(x.size(0) * x.size(1) * x.size(2))"),
        ((16, 42, 8), "(x.size(1) / x.size(0))"),
        ((56, 45, 18), "(x.size(2) - x.size(0))"),
        ((193, 175, 37), "((x.size(1) + x.size(2)) + 1)"),
        ((160, 120, 50), "(5 * x.size(2) / 2)"),
        ((160, 120, 51), None),
        ((7, 1000, 13), None),
    ],
)  # fmt: skip
def test_the_simplest_expression_of_a_number_is_found(
    values: tuple[int, ...], expected: str | None
) -> None:
    assert whole(values, (ONE, N, H, W)) == expected


def worth(text: str | None) -> list[float]:
    """What an expression of C++ is worth at each shape set."""
    assert text is not None
    own = text.replace("std::", "").replace("(double)", "")
    for one in (N, H):
        own = own.replace(one.text, f"at[{one.text!r}]")
    names = {"sqrt": math.sqrt, "log": math.log, "pow": pow}
    return [eval(own, names, {"at": {one.text: one.values[k] for one in (N, H)}}) for k in range(3)]


@pytest.mark.parametrize(
    "made",
    [
        lambda n, h: n**-0.5,
        lambda n, h: 1 / (n * h),
        lambda n, h: n - 0.1,
        lambda n, h: math.log(h - 1),
        lambda n, h: 1 / math.log(h - 1),
        lambda n, h: 1.0 - 0.001 * n,
        lambda n, h: 0.3 / h,
        lambda n, h: 20.0 / (h - 1),
        lambda n, h: -0.5 * h,
        lambda n, h: h**-0.8,
        lambda n, h: 0.001 * (n * h) ** 0.5,
        lambda n, h: 1 - 0.999**h,
        lambda n, h: 0.9**n,
        lambda n, h: 1.01**h,
    ],
)
def test_a_number_with_a_fraction_is_found(made: Callable[[int, int], float]) -> None:
    values = [made(n, h) for n, h in zip(N.values, H.values, strict=True)]
    assert worth(fraction(values, (N, H))) == pytest.approx(values, rel=1e-8)


def test_a_number_that_no_extent_makes_is_none() -> None:
    assert fraction((0.125, 0.125), (N,)) == "0.125"
    assert fraction((0.1, 0.2, 0.3), (N, H)) is None
    assert fraction((0.992, 0.9971, 0.998), (N, H)) is None


def test_the_side_of_a_square_is_a_root() -> None:
    tokens = Known("x.size(1)", (196, 169, 49))
    root = "(int64_t)std::llround(std::sqrt((double)x.size(1)))"
    assert whole((14, 13, 7), (N, tokens)) == root
    assert whole((14, 13, 1000), (N, tokens)) is None


def test_a_number_whose_power_no_float_holds_is_none() -> None:
    steps = Known("number1", (2, 1000, 3))
    assert fraction((1e99, 5.0, 7.0), (steps,)) is None
    assert fraction((1e-99, 0.5, 0.7), (steps,)) is None


def test_a_power_that_two_extents_would_tell_has_to_be_a_half() -> None:
    two = Known("x.size(0)", (8, 2, 2))
    assert fraction((8**0.3, 2**0.3, 2**0.3), (two,)) is None
    assert fraction((3 * 8**1.5, 3 * 2**1.5, 3 * 2**1.5), (two,)) is not None
    assert fraction((0.5, float("nan"), 0.25), (N,)) is None
    assert fraction((0.5, -0.5, 0.25), (N,)) is None


@pytest.mark.parametrize("values", [(1e300, 1.0, 1e-300), (5e-324, 1.0, 2.0), (1e308, -1e308, 1.0)])
def test_numbers_as_far_apart_as_floats_go_are_no_power(values: tuple[float, ...]) -> None:
    assert fraction(values, (N, H)) is None
