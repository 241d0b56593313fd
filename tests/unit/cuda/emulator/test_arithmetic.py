"""Single instructions on edge cases and random bits, against exact references."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from support.emulator_harness import one_instruction
from support.exact import rounded, wrapped

pytestmark = pytest.mark.unit
INTEGERS = {"s16": np.int16, "u16": np.uint16, "s32": np.int32, "u32": np.uint32,
            "s64": np.int64, "u64": np.uint64}  # fmt: skip
FLOATS = {"f32": np.float32, "f64": np.float64}
DIRECTIONS = ("rn", "rz", "rm", "rp")


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def integers(kind: Any, seed: int, n: int = 384) -> np.ndarray:
    rng = np.random.default_rng(seed)
    info = np.iinfo(kind)
    found = rng.integers(info.min, info.max, n, dtype=kind, endpoint=True)
    found[:8] = [0, 1, info.max, info.min, 2, 3, info.max - 1, 5]
    found[8:64] = rng.integers(0 if info.min == 0 else -40, 40, 56)
    return rng.permutation(found) if seed else found


def floats(kind: Any, seed: int, n: int = 384) -> np.ndarray:
    rng = np.random.default_rng(seed)
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(kind).itemsize]
    found = rng.integers(0, np.iinfo(bits).max, n, dtype=bits).view(kind).copy()
    found[:10] = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1.5, 2.5, -2.5]
    found[10:200] = rng.standard_normal(190) * 10
    return rng.permutation(found) if seed else found


def rows(*columns: Any) -> list[Any]:
    return list(zip(*columns, strict=True))


def same(got: np.ndarray, expected: np.ndarray) -> None:
    equal = (got == expected) | ((got != got) & (expected != expected))
    assert equal.all(), (got[~equal][:3], expected[~equal][:3])


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_arithmetic_wraps(name: str) -> None:
    kind = INTEGERS[name]
    a, b, c = (integers(kind, seed) for seed in (0, 1, 2))
    bits = np.iinfo(kind).bits

    def check(opcode: str, function: Callable[..., int], *operands: np.ndarray) -> None:
        expected = [wrapped(function(*(int(x) for x in row)), kind) for row in rows(*operands)]
        same(one_instruction(f"{opcode}.{name}", kind, *operands), np.array(expected, kind))

    check("add", lambda x, y: x + y, a, b)
    check("sub", lambda x, y: x - y, a, b)
    check("mul.lo", lambda x, y: x * y, a, b)
    check("mul.hi", lambda x, y: x * y >> bits, a, b)
    check("mad.lo", lambda x, y, z: x * y + z, a, b, c)
    check("min", min, a, b)
    check("max", max, a, b)
    divisor = np.where(b == 0, kind(7), b)
    check("div", quotient, a, divisor)
    check("rem", lambda x, y: x - y * quotient(x, y), a, divisor)
    check("sad", lambda x, y, z: z + abs(x - y), a, b, c)
    if name[0] == "s":
        check("neg", lambda x: -x, a)
        check("abs", abs, a)


@pytest.mark.parametrize("name", ["s16", "u16", "s32", "u32"])
def test_wide_products(name: str) -> None:
    kind = INTEGERS[name]
    double = INTEGERS[name[0] + str(2 * int(name[1:]))]
    a, b = integers(kind, 0), integers(kind, 1)
    expected = a.astype(double) * b.astype(double)
    same(one_instruction(f"mul.wide.{name}", double, a, b), expected)


@pytest.mark.parametrize("name", INTEGERS)
def test_shifts_clamp_their_amount(name: str) -> None:
    kind = INTEGERS[name]
    a = integers(kind, 0)
    amount = np.random.default_rng(3).integers(0, 90, len(a), dtype=np.uint32)
    expected = np.array([wrapped(int(x) >> int(n), kind) for x, n in rows(a, amount)], kind)
    same(one_instruction(f"shr.{name}", kind, a, amount), expected)
    left = np.array([wrapped(int(x) << int(n), kind) for x, n in rows(a, amount)], kind)
    same(one_instruction(f"shl.b{name[1:]}", kind, a, amount), left)


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_comparisons(name: str) -> None:
    a, b = integers(INTEGERS[name], 0), integers(INTEGERS[name], 1)
    b[::5] = a[::5]
    tests = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    for test, expected in tests.items():
        got = one_instruction(f"setp.{test}.{name}", np.uint32, a, b, predicate=True)
        same(got, expected.astype(np.uint32))


@pytest.mark.parametrize("name", FLOATS)
def test_ordered_and_unordered_comparisons(name: str) -> None:
    a, b = floats(FLOATS[name], 0), floats(FLOATS[name], 1)
    b[::5] = a[::5]
    less, equal, greater = a < b, a == b, a > b
    unordered = ~(less | equal | greater)
    tests = {
        "eq": equal, "ne": less | greater, "lt": less, "le": less | equal, "gt": greater,
        "ge": greater | equal, "equ": equal | unordered, "neu": ~equal, "ltu": less | unordered,
        "leu": less | equal | unordered, "gtu": greater | unordered,
        "geu": greater | equal | unordered, "num": ~unordered, "nan": unordered,
    }  # fmt: skip
    for test, expected in tests.items():
        got = one_instruction(f"setp.{test}.{name}", np.uint32, a, b, predicate=True)
        same(got, expected.astype(np.uint32))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", FLOATS)
def test_floating_point_is_rounded_once_in_the_given_direction(name: str, direction: str) -> None:
    kind = FLOATS[name]
    a, b, c = (floats(kind, seed) for seed in (0, 1, 2))
    operations: dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
        "add": lambda x, y, z: x + y,
        "sub": lambda x, y, z: x - y,
        "mul": lambda x, y, z: x * y,
        "fma": lambda x, y, z: x * y + z,
        "div": lambda x, y, z: x / y,
    }
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (b != 0)
    for operation, function in operations.items():
        operands = (a, b, c) if operation == "fma" else (a, b)
        got = one_instruction(f"{operation}.{direction}.{name}", kind, *operands)
        for i in np.nonzero(finite)[0]:
            x, y, z = (Fraction(float(v[i])) for v in (a, b, c))
            assert got[i] == rounded(function(x, y, z), kind, direction), (operation, x, y, z)


@pytest.mark.parametrize("name", FLOATS)
def test_roots_reciprocals_minima_and_special_values(name: str) -> None:
    kind = FLOATS[name]
    a, b = floats(kind, 0), floats(kind, 1)
    same(one_instruction(f"sqrt.rn.{name}", kind, a), np.sqrt(a))
    same(one_instruction(f"rcp.rn.{name}", kind, a), (1 / a).astype(kind))
    same(one_instruction(f"add.{name}", kind, a, b), a + b)
    same(one_instruction(f"div.rn.{name}", kind, a, b), a / b)
    same(one_instruction(f"min.{name}", kind, a, b), np.fmin(a, b))
    same(one_instruction(f"max.{name}", kind, a, b), np.fmax(a, b))
    same(one_instruction(f"abs.{name}", kind, a), np.abs(a))
    same(one_instruction(f"copysign.{name}", kind, a, b), np.copysign(b, a))
    if name == "f32":
        same(one_instruction("min.NaN.f32", kind, a, b), np.minimum(a, b))
        zeros = np.array([0.0, -0.0], np.float32)
        got = one_instruction("min.f32", kind, zeros, zeros[::-1].copy())
        assert np.signbit(got).all()


@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("name", FLOATS)
def test_conversions_to_integers_clamp_and_round(name: str, target: str) -> None:
    a = floats(FLOATS[name], 0)
    kind = np.dtype(f"{'u' if target[0] == 'u' else ''}int{target[1:]}").type
    info = np.iinfo(kind)
    held = {1: np.int16 if target[0] == "s" else np.uint16}.get(np.dtype(kind).itemsize, kind)
    ways = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    for way, function in ways.items():
        got = one_instruction(f"cvt.{way}.{target}.{name}", held, a)
        for value, result in rows(function(a), got):
            if value != value:
                expected = 0
            elif abs(value) == np.inf:
                expected = info.max if value > 0 else info.min
            else:
                expected = max(info.min, min(info.max, int(value)))
            assert int(kind(result)) == expected, (way, value)
        same(one_instruction(f"cvt.{way}.{name}.{name}", FLOATS[name], a), function(a))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_conversions_to_floats_round_once(direction: str) -> None:
    for name, kind in FLOATS.items():
        for source in ("s32", "u32", "s64", "u64"):
            a = integers(INTEGERS[source], 0)
            got = one_instruction(f"cvt.{direction}.{name}.{source}", kind, a)
            for value, result in rows(a, got):
                assert result == rounded(Fraction(int(value)), kind, direction)
    wide = floats(np.float64, 0)
    wide[200:300] = np.random.default_rng(5).standard_normal(100) * 1e-42
    got = one_instruction(f"cvt.{direction}.f32.f64", np.float32, wide)
    for i in np.nonzero(np.isfinite(wide))[0]:
        assert got[i] == rounded(Fraction(float(wide[i])), np.float32, direction)


def test_conversions_of_halves_on_all_values_and_all_ties() -> None:
    h = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = h.astype(np.float32)
    same(one_instruction("cvt.f32.f16", np.float32, h), wide)
    ties = (wide[:-1] + wide[1:]) / 2
    x = np.concatenate([wide, np.nextafter(wide, np.float32(np.inf)), ties, floats(np.float32, 0)])
    same(one_instruction("cvt.rn.f16.f32", np.float16, x), x.astype(np.float16))
    number = x[~np.isnan(x)]
    expected = torch.from_numpy(number).to(torch.bfloat16).view(torch.int16).numpy()
    same(one_instruction("cvt.rn.bf16.f32", np.int16, number), expected)


def test_fused_halves_are_rounded_once() -> None:
    a, b, c = (floats(np.float16, seed, 2048) for seed in (0, 1, 2))
    got = one_instruction("fma.rn.f16", np.float16, a, b, c)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for i in np.nonzero(finite)[0]:
        x, y, z = (Fraction(float(v[i])) for v in (a, b, c))
        assert got[i] == rounded(x * y + z, np.float16, "rn")


def test_flushing_of_subnormals() -> None:
    tiny = np.array([1e-40, -1e-40, 1e-38, 1.0, -0.0], np.float32)
    one = np.ones_like(tiny)
    got = one_instruction("mul.ftz.f32", np.float32, tiny, one)
    assert got.tolist() == [0.0, -0.0, 0.0, 1.0, 0.0]
    assert np.signbit(got).tolist() == [False, True, False, False, True]
    same(one_instruction("mul.f32", np.float32, tiny, one), tiny)


def test_saturation() -> None:
    a = np.array([-1, 0.25, 3, np.nan], np.float32)
    assert one_instruction("add.sat.f32", np.float32, a, a).tolist() == [0, 0.5, 1, 0]
    big = np.array([2**31 - 1, -(2**31), 5], np.int32)
    expected = [2**31 - 1, -(2**31), 10]
    assert one_instruction("add.sat.s32", np.int32, big, big).tolist() == expected
    assert one_instruction("cvt.sat.u8.s32", np.uint16, big).tolist() == [255, 0, 5]


def bit_field(value: int, start: int, length: int, bits: int, signed: bool) -> int:
    """The manual's own definition of bfe, bit by bit."""
    start, length = start & 255, length & 255
    sign = value >> min(start + length - 1, bits - 1) & 1 if signed and length else 0
    out = 0
    for i in range(bits):
        bit = value >> (i + start) & 1 if i < length and i + start < bits else sign
        out |= bit << i
    return out


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_bit_fields(name: str) -> None:
    kind, bits = INTEGERS[name], int(name[1:])
    unsigned = np.uint32 if bits == 32 else np.uint64
    rng = np.random.default_rng(0)
    a, f = integers(unsigned, 0), integers(unsigned, 1)
    start = rng.integers(0, bits + 20, len(a), dtype=np.uint32)
    length = rng.integers(0, bits + 10, len(a), dtype=np.uint32)
    got = one_instruction(f"bfe.{name}", unsigned, a, start, length)
    for x, s, n, result in rows(a, start, length, got):
        assert result == bit_field(int(x), int(s), int(n), bits, name[0] == "s"), (x, s, n)
    inserted = one_instruction(f"bfi.b{bits}", unsigned, a, f, start, length)
    for x, y, s, n, result in rows(a, f, start, length, inserted):
        mask = ((1 << int(n)) - 1) << int(s) & ((1 << bits) - 1)
        assert int(result) == (int(y) & ~mask) | (int(x) << int(s) & mask)
    assert kind is not None


def test_counting_and_permuting_bits() -> None:
    a, b = integers(np.uint32, 0), integers(np.uint32, 1)
    same(one_instruction("popc.b32", np.uint32, a), np.array([x.bit_count() for x in a.tolist()]))
    leading = np.array([32 - x.bit_length() for x in a.tolist()], np.uint32)
    same(one_instruction("clz.b32", np.uint32, a), leading)
    reverse = np.array([int(f"{x:032b}"[::-1], 2) for x in a.tolist()], np.uint32)
    same(one_instruction("brev.b32", np.uint32, a), reverse)
    found = np.array([(x.bit_length() - 1) & 0xFFFFFFFF for x in a.tolist()], np.uint32)
    same(one_instruction("bfind.u32", np.uint32, a), found)
    selector = np.random.default_rng(2).integers(0, 65536, len(a), dtype=np.uint32)
    got = one_instruction("prmt.b32", np.uint32, a, b, selector)
    for x, y, s, result in rows(a.tolist(), b.tolist(), selector.tolist(), got.tolist()):
        pool = (x | y << 32).to_bytes(8, "little")
        parts = []
        for nibble in range(4):
            which = s >> 4 * nibble & 15
            byte = pool[which & 7]
            parts.append((255 if byte & 128 else 0) if which & 8 else byte)
        assert result == int.from_bytes(bytes(parts), "little")


def test_logic_by_table_and_funnel_shifts() -> None:
    a, b, c = (integers(np.uint32, seed) for seed in (0, 1, 2))
    table = np.random.default_rng(0).integers(0, 256, len(a), dtype=np.uint32)
    got = one_instruction("lop3.b32", np.uint32, a, b, c, table)
    for x, y, z, t, result in rows(
        a.tolist(), b.tolist(), c.tolist(), table.tolist(), got.tolist()
    ):
        expected = 0
        for bit in range(32):
            index = (x >> bit & 1) << 2 | (y >> bit & 1) << 1 | (z >> bit & 1)
            expected |= (t >> index & 1) << bit
        assert result == expected
    both = b.astype(np.uint64) << np.uint64(32) | a
    amount = (c & 31).astype(np.uint64)
    left = ((both << amount) >> np.uint64(32)).astype(np.uint32)
    same(one_instruction("shf.l.wrap.b32", np.uint32, a, b, c), left)
    same(one_instruction("shf.r.wrap.b32", np.uint32, a, b, c), (both >> amount).astype(np.uint32))


def test_dot_products_of_bytes() -> None:
    a, b, c = (integers(np.uint32, seed) for seed in (0, 1, 2))
    x = a.view(np.int8).reshape(-1, 4).astype(np.int64)
    y = b.view(np.uint8).reshape(-1, 4).astype(np.int64)
    expected = ((x * y).sum(1) + c).astype(np.uint32)
    same(one_instruction("dp4a.s32.u32", np.uint32, a, b, c), expected)


def test_differences_of_bytes() -> None:
    a, b, c = (integers(np.uint32, seed) for seed in (0, 1, 2))
    x, y = (v.view(np.uint8).reshape(-1, 4).astype(np.int64) for v in (a, b))
    expected = np.abs(x - y).astype(np.uint8)
    same(
        one_instruction("vabsdiff4.u32.u32.u32", np.uint32, a, b, c), expected.view(np.uint32)[:, 0]
    )
    total = (expected.sum(1, dtype=np.uint64) + c).astype(np.uint32)
    same(one_instruction("vabsdiff4.u32.u32.u32.add", np.uint32, a, b, c), total)


def test_carries_chain_through_instructions() -> None:
    a, b = integers(np.uint32, 0), integers(np.uint32, 1)
    high = one_instruction("addc.u32", np.uint32, a, b, prologue="add.cc.u32 %r70, %r0, %r1;")
    carry = (a.astype(np.uint64) + b) >> np.uint64(32)
    same(high, (a + b + carry.astype(np.uint32)).astype(np.uint32))
    low = one_instruction("subc.u32", np.uint32, a, b, prologue="sub.cc.u32 %r70, %r0, %r1;")
    same(low, (a - b - (a < b)).astype(np.uint32))
