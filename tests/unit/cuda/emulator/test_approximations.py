"""Approximate instructions within the error that the PTX manual states, over their whole range.

Bounds: NVIDIA, Parallel Thread Execution ISA 9.0, sections of each instruction. The values walk
through all exponents, subnormals and both signs; what the manual lists of special values is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from support.emulator_harness import one_instruction

pytestmark = pytest.mark.unit

Function = Callable[[np.ndarray], np.ndarray]
INF, NAN = np.inf, np.nan


def walk(bits: int, count: int = 120_001) -> np.ndarray:
    """Floats of that width spread over all bit patterns, NaNs left out."""
    kinds = {32: (np.uint32, np.float32), 64: (np.uint64, np.float64)}
    unsigned, kind = kinds[bits]
    step = (1 << bits) // count | 1
    patterns = (np.arange(count, dtype=object) * step % (1 << bits)).astype(unsigned)
    values = patterns.view(kind)
    return values[~np.isnan(values)]


def spread(low: float, high: float, count: int = 100_001) -> np.ndarray:
    return np.linspace(low, high, count).astype(np.float32)


def flushed(x: np.ndarray) -> np.ndarray:
    """Subnormals as zeros of their sign."""
    tiny = np.finfo(x.dtype).tiny
    return np.where(np.abs(x) < tiny, np.copysign(x.dtype.type(0), x), x)


@dataclass(frozen=True)
class Case:
    """One instruction on one range. ulps, relative, absolute: the bound, whichever is given."""

    opcode: str
    exact: Function
    values: np.ndarray
    ulps: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0

    def __str__(self) -> str:
        return f"{self.opcode} on [{self.values.min():.3g}, {self.values.max():.3g}]"


ALL = walk(32)
POSITIVE = ALL[(ALL > 0) & np.isfinite(ALL)]
NORMAL = POSITIVE[np.finfo(np.float32).tiny <= POSITIVE]
CASES = [
    Case("rcp.approx.f32", lambda x: 1 / x, ALL[np.isfinite(ALL) & (ALL != 0)], ulps=1),
    Case("rcp.approx.ftz.f32", lambda x: 1 / x, np.concatenate([NORMAL, -NORMAL]), ulps=1),
    Case("sqrt.approx.f32", np.sqrt, POSITIVE, relative=2**-23),
    Case("sqrt.approx.ftz.f32", np.sqrt, NORMAL, relative=2**-23),
    Case("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), POSITIVE, relative=2**-22.9),
    Case("rsqrt.approx.ftz.f32", lambda x: 1 / np.sqrt(x), NORMAL, relative=2**-22.9),
    Case("ex2.approx.f32", np.exp2, spread(-150, 127.99), ulps=2),
    Case("ex2.approx.ftz.f32", np.exp2, spread(-125.9, 127.99), ulps=2),
    Case("lg2.approx.f32", np.log2, spread(0.5001, 1.9999), absolute=2**-22),
    Case("lg2.approx.f32", np.log2, POSITIVE[(POSITIVE < 0.5) | (POSITIVE > 2)], relative=2**-22),
    Case("lg2.approx.ftz.f32", np.log2, NORMAL[(NORMAL < 0.5) | (NORMAL > 2)], relative=2**-22),
    Case("sin.approx.f32", np.sin, spread(-2 * np.pi, 2 * np.pi), absolute=2**-20.5),
    Case("cos.approx.f32", np.cos, spread(-2 * np.pi, 2 * np.pi), absolute=2**-20.5),
    Case("sin.approx.ftz.f32", np.sin, spread(-100 * np.pi, 100 * np.pi), absolute=2**-14.7),
    Case("cos.approx.ftz.f32", np.cos, spread(-100 * np.pi, 100 * np.pi), absolute=2**-14.7),
    Case("tanh.approx.f32", np.tanh, ALL[np.isfinite(ALL) & (np.abs(ALL) > 1e-35)],
         relative=2**-11),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_single_precision_keeps_the_stated_error(case: Case) -> None:
    with np.errstate(over="ignore"):
        exact = case.exact(case.values.astype(np.float64))
        near = exact.astype(np.float32)
    got = one_instruction(case.opcode, np.float32, case.values).astype(np.float64)
    ends = np.isinf(near) | (np.abs(near) < np.finfo(np.float32).tiny)
    if "ftz" in case.opcode:
        assert (got[np.abs(near) < np.finfo(np.float32).tiny * 0.99] == 0).all()
    else:  # overflow and underflow are those of rounding
        assert (np.abs(got[ends] - near[ends])[np.isfinite(near[ends])] <= 2 * 2.0**-149).all()
        assert (got[np.isinf(near)] == near[np.isinf(near)]).all()
    error = np.abs(got - exact)[~ends]
    exact, near = exact[~ends], near[~ends]
    bound = case.absolute + case.relative * np.abs(exact)
    if case.ulps:
        bound = case.ulps * np.spacing(np.abs(near)).astype(np.float64)
    else:
        bound = bound + np.spacing(np.abs(near)).astype(np.float64) / 2  # the result is a float
    worst = int(np.argmax(error / bound))
    assert error[worst] <= bound[worst], (case.opcode, exact[worst], error[worst], bound[worst])


SPECIAL = {
    "rcp.approx.f32": [(INF, 0.0), (-INF, -0.0), (0.0, INF), (-0.0, -INF), (NAN, NAN)],
    "rcp.approx.ftz.f32": [(1e-40, INF), (-1e-40, -INF), (3e38, 0.0)],
    "sqrt.approx.f32": [(INF, INF), (0.0, 0.0), (-0.0, -0.0), (-1.0, NAN), (-INF, NAN), (NAN, NAN)],
    "sqrt.approx.ftz.f32": [(1e-40, 0.0), (-1e-40, -0.0)],
    "rsqrt.approx.f32": [
        (INF, 0.0),
        (0.0, INF),
        (-0.0, -INF),
        (-1.0, NAN),
        (-INF, NAN),
        (NAN, NAN),
    ],
    "rsqrt.approx.ftz.f32": [(1e-40, INF), (-1e-40, -INF)],
    "ex2.approx.f32": [
        (INF, INF),
        (-INF, 0.0),
        (0.0, 1.0),
        (-0.0, 1.0),
        (128.0, INF),
        (-160.0, 0.0),
        (NAN, NAN),
    ],
    "ex2.approx.ftz.f32": [(1e-40, 1.0), (-1e-40, 1.0), (-127.5, 0.0)],
    "lg2.approx.f32": [
        (INF, INF),
        (0.0, -INF),
        (-0.0, -INF),
        (-1.0, NAN),
        (-INF, NAN),
        (1.0, 0.0),
        (NAN, NAN),
    ],
    "lg2.approx.ftz.f32": [(1e-40, -INF), (-1e-40, -INF)],
    "sin.approx.f32": [(INF, NAN), (-INF, NAN), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN)],
    "sin.approx.ftz.f32": [(1e-40, 0.0), (-1e-40, -0.0)],
    "cos.approx.f32": [(INF, NAN), (-INF, NAN), (0.0, 1.0), (-0.0, 1.0), (NAN, NAN)],
    "cos.approx.ftz.f32": [(1e-40, 1.0), (-1e-40, 1.0)],
    "tanh.approx.f32": [(INF, 1.0), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN)],
}


@pytest.mark.parametrize("opcode", SPECIAL)
def test_special_values_are_those_of_the_manuals_tables(opcode: str) -> None:
    table = SPECIAL[opcode]
    got = one_instruction(opcode, np.float32, np.array([x for x, _ in table], np.float32))
    for (value, expected), result in zip(table, got.tolist(), strict=True):
        same = result == expected and np.signbit(result) == np.signbit(expected)
        assert same or (result != result and expected != expected), (value, expected, result)


@pytest.mark.parametrize("opcode", ["div.approx.f32", "div.full.f32", "div.approx.ftz.f32",
                                    "div.full.ftz.f32"])  # fmt: skip
def test_fast_division_is_within_two_ulps(opcode: str) -> None:
    rng = np.random.default_rng(0)
    b = (rng.uniform(1, 2, 60_000) * 2.0 ** rng.integers(-126, 126, 60_000)).astype(np.float32)
    a = (rng.uniform(1, 2, 60_000) * 2.0 ** rng.integers(-60, 60, 60_000)).astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        exact = a.astype(np.float64) / b
        near = exact.astype(np.float32)
    plain = np.isfinite(near) & (near >= np.finfo(np.float32).tiny)
    got = one_instruction(opcode, np.float32, a, b)
    error = np.abs(got.astype(np.float64) - exact)[plain]
    assert (error <= 2 * np.spacing(near[plain]).astype(np.float64)).all()
    huge = np.full(4, 2.0**127, np.float32)
    over = one_instruction(opcode, np.float32, np.array([1, -1, INF, 0], np.float32), huge)
    if "approx" in opcode:  # the divisor's reciprocal is subnormal, and is flushed
        assert over[:2].tolist() == [0.0, 0.0]
        assert np.signbit(over[:2]).tolist() == [False, True]
        assert np.isnan(over[2])


@pytest.mark.parametrize(
    ("opcode", "exact", "low"),
    [
        ("rcp.approx.ftz.f64", lambda x: 1 / x, 2.0**-1022),
        ("rsqrt.approx.ftz.f64", lambda x: 1 / np.sqrt(x), 2.0**-1022),
        ("rsqrt.approx.f64", lambda x: 1 / np.sqrt(x), 0.0),
    ],
)
def test_double_precision_keeps_twenty_bits(opcode: str, exact: Function, low: float) -> None:
    x = walk(64, 60_001)
    x = x[(x > low) & np.isfinite(x) & (x < 2.0**1021)]
    expected = exact(x)
    got = one_instruction(opcode, np.float64, x)
    assert (np.abs(got - expected) <= 2.0**-20 * np.abs(expected)).all()


def test_a_hyperbolic_tangent_is_no_better_than_stated() -> None:
    """11 bits on hardware: a kernel that is wrong there must not be right here."""
    x = spread(-4, 4)
    exact = np.tanh(x.astype(np.float64))
    error = np.abs(one_instruction("tanh.approx.f32", np.float32, x) - exact) / np.abs(exact)
    assert np.nanmax(error) > 2**-11.2
    assert np.nanmedian(error) > 2**-14


HALVES = {
    "ex2.approx.f16": (torch.float16, torch.exp2, 0.0, 2**-9.9),
    "ex2.approx.ftz.bf16": (torch.bfloat16, torch.exp2, 0.0, 2**-7),
    "tanh.approx.f16": (torch.float16, torch.tanh, 2**-10.987, 0.0),
    "tanh.approx.bf16": (torch.bfloat16, torch.tanh, 2**-8, 0.0),
}


@pytest.mark.parametrize("opcode", HALVES)
def test_every_half_keeps_the_stated_error(opcode: str) -> None:
    """All 65,536 values, also as the two halves of a packed register."""
    dtype, function, absolute, relative = HALVES[opcode]
    patterns = np.arange(65536, dtype=np.uint16)
    x = torch.from_numpy(patterns.view(np.int16)).view(dtype).double()
    exact = function(x).numpy()
    got = one_instruction(opcode, np.uint16, patterns)
    value = torch.from_numpy(got.view(np.int16)).view(dtype).double().numpy()
    largest, smallest = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    plain = np.isfinite(exact) & (np.abs(exact) <= largest) & (np.abs(exact) >= smallest)
    half_ulp = torch.finfo(dtype).eps / 2 * np.abs(exact[plain])  # the result is a half itself
    bound = absolute + relative * np.abs(exact[plain]) + half_ulp
    assert (np.abs(value - exact)[plain] <= bound).all()
    assert np.isnan(value[np.isnan(exact)]).all()
    packed = patterns.astype(np.uint32) | patterns[::-1].astype(np.uint32) << 16
    both = one_instruction(f"{opcode}x2", np.uint32, packed)
    assert np.array_equal((both & 0xFFFF).astype(np.uint16), got)
    assert np.array_equal((both >> 16).astype(np.uint16), got[::-1])
