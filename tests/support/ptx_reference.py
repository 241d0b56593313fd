"""What PTX instructions compute, written a second time from the manual, in exact arithmetic.

Operands and results are bit patterns (Python integers). Nothing here is shared with the emulator's
own tables. Source: NVIDIA, Parallel Thread Execution ISA 9.0, chapter 9.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from support.ptx_numbers import (
    DIRECTIONS,
    NAN,
    Float,
    add,
    as_bits,
    as_int,
    clamp_int,
    decode,
    divide,
    encode,
    flush,
    integral,
    is_float,
    less,
    minimum,
    multiply,
    negated,
    root,
    signed,
    truncated_quotient,
    width,
)

Compute = Callable[..., int]


@dataclass(frozen=True)
class Reference:
    """One instruction: the types of its result and operands, and what it computes of bits.
    None as an operand's value is never given; a result NAN means any NaN."""

    result: str
    operands: tuple[str, ...]
    compute: Compute
    carry_in: bool = False
    carry_out: bool = False


def reference(opcode: str) -> Reference | None:
    """The instruction of that name; None where this file does not describe it."""
    head, *modifiers = opcode.split(".")
    if head in ("add", "sub", "mul", "fma", "mad") and is_float(modifiers[-1].removesuffix("x2")):
        return _float_arithmetic(head, modifiers)
    makers: dict[str, Callable[[str, list[str]], Reference | None]] = {
        **dict.fromkeys(("add", "sub", "addc", "subc"), _integer_sum),
        **dict.fromkeys(("mul", "mad", "madc"), _product),
        **dict.fromkeys(("mul24", "mad24"), _product24),
        **dict.fromkeys(("div", "rem"), _division),
        **dict.fromkeys(("sqrt", "rcp", "rsqrt"), _root),
        **dict.fromkeys(("min", "max"), _min_max),
        **dict.fromkeys(("neg", "abs"), _neg_abs),
        **dict.fromkeys(("and", "or", "xor", "not", "cnot", "mov"), _logic),
        **dict.fromkeys(("shl", "shr"), _shift),
        **dict.fromkeys(("popc", "clz", "brev", "bfind"), _count),
        **dict.fromkeys(("bfe", "bfi", "bmsk", "szext", "fns", "shf", "prmt", "lop3"), _bits),
        **dict.fromkeys(("dp4a", "dp2a", "sad", "vabsdiff4"), _sums),
        **dict.fromkeys(("setp", "set"), _compare),
        **dict.fromkeys(("selp", "slct"), _select),
        "testp": _testp, "copysign": _copysign, "cvt": _convert,
    }  # fmt: skip
    maker = makers.get(head)
    return maker(head, modifiers) if maker else None


def _finish(kind: str, number: Float, direction: str, flags: set[str]) -> int:
    """Round, flush, saturate, clip: in the order that the manual gives them."""
    if "sat" in flags:
        if number.nan or number.negative:
            return encode(kind, Float(False, Fraction(0)))
        if number.infinite or (number.value or 0) > 1:
            number = Float(False, Fraction(1))
    if "relu" in flags and number.negative and not number.nan:
        number = Float(False, Fraction(0))
    bits = encode(kind, number, direction)
    if bits == NAN or "ftz" not in flags:
        return bits
    return encode(kind, flush(kind, decode(kind, bits)))


def _lanes(kind: str, one: Callable[..., int]) -> Compute:
    """A function on halves of a packed register, or as it is."""
    if not kind.endswith("x2"):
        return one
    bits = width(kind) // 2
    mask = (1 << bits) - 1

    def both(*values: int) -> int:
        parts = []
        for shift in (0, bits):
            got = one(*(v >> shift & mask for v in values))
            nan = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}[kind.removesuffix("x2")]
            parts.append(nan if got == NAN else got)
        return parts[0] | parts[1] << bits

    return both


def _float_arithmetic(head: str, modifiers: list[str]) -> Reference:
    kind = modifiers[-1]
    base = kind.removesuffix("x2")
    flags = set(modifiers[:-1])
    direction = next((d for d in DIRECTIONS if d in flags), "rn")

    def one(*values: int) -> int:
        numbers = [decode(base, v) for v in values]
        if "ftz" in flags:
            numbers = [flush(base, n) for n in numbers]
        if head == "add":
            out = add(numbers[0], numbers[1], direction)
        elif head == "sub":
            out = add(numbers[0], negated(numbers[1]), direction)
        elif head == "mul":
            out = multiply(numbers[0], numbers[1])
        else:
            out = add(multiply(numbers[0], numbers[1]), numbers[2], direction)
        return _finish(base, out, direction, flags)

    arity = 3 if head in ("fma", "mad") else 2
    return Reference(kind, (kind,) * arity, _lanes(kind, one))


def _integer_sum(head: str, modifiers: list[str]) -> Reference:
    kind = modifiers[-1]
    sign = 1 if head.startswith("add") else -1
    mask = (1 << width(kind)) - 1

    def compute(a: int, b: int, carry: int = 0) -> int:
        if "sat" in modifiers:
            return as_bits(kind, clamp_int(kind, as_int(kind, a) + sign * as_int(kind, b)))
        total = a + sign * (b + carry)
        out = total & mask
        return out | int(not 0 <= total <= mask) << 64 if "cc" in modifiers else out

    return Reference(kind, (kind,) * 2, compute, head.endswith("c"), "cc" in modifiers)


def _product(head: str, modifiers: list[str]) -> Reference:
    kind = modifiers[-1]
    bits = width(kind)
    part = next(m for m in modifiers if m in ("lo", "hi", "wide"))
    result = kind[0] + str(2 * bits) if part == "wide" else kind

    def compute(a: int, b: int, *rest: int) -> int:
        whole = as_int(kind, a) * as_int(kind, b)
        if part == "hi":
            whole >>= bits
        if "sat" in modifiers:
            return as_bits(kind, clamp_int(kind, whole + as_int(kind, rest[0])))
        if head == "mul":
            return as_bits(result, whole)
        total = as_bits(result, whole) + sum(rest)
        out = as_bits(result, total)
        return out | int(total != out) << 64 if "cc" in modifiers else out

    operands = (kind, kind) if head == "mul" else (kind, kind, result)
    return Reference(result, operands, compute, head == "madc", "cc" in modifiers)


def _product24(head: str, modifiers: list[str]) -> Reference:
    part, kind = modifiers

    def low(x: int) -> int:
        x &= 0xFFFFFF
        return x - (1 << 24) if kind[0] == "s" and x >> 23 else x

    def compute(a: int, b: int, c: int = 0) -> int:
        return (low(a) * low(b) >> (16 if part == "hi" else 0)) + c & 0xFFFFFFFF

    return Reference(kind, (kind,) * (2 if head == "mul24" else 3), compute)


def _division(head: str, modifiers: list[str]) -> Reference | None:
    kind, flags = modifiers[-1], set(modifiers[:-1])
    if is_float(kind):
        if flags & {"approx", "full"}:
            return None  # test_approximations.py
        direction = next((d for d in DIRECTIONS if d in flags), "rn")

        def quotient(a: int, b: int) -> int:
            numbers = [decode(kind, v) for v in (a, b)]
            if "ftz" in flags:
                numbers = [flush(kind, n) for n in numbers]
            return _finish(kind, divide(*numbers), direction, flags)

        return Reference(kind, (kind, kind), quotient)

    def compute(a: int, b: int) -> int:
        x, y = as_int(kind, a), as_int(kind, b)
        if y == 0:  # not defined by the manual; hardware gives all ones, and the dividend
            return as_bits(kind, -1) if head == "div" else a
        found = truncated_quotient(x, y)
        return as_bits(kind, found if head == "div" else x - y * found)

    return Reference(kind, (kind, kind), compute)


def _root(head: str, modifiers: list[str]) -> Reference | None:
    kind, flags = modifiers[-1], set(modifiers[:-1])
    if "approx" in flags or head == "rsqrt":
        return None  # test_approximations.py
    direction = next((d for d in DIRECTIONS if d in flags), "rn")

    def compute(a: int) -> int:
        number = decode(kind, a)
        if "ftz" in flags:
            number = flush(kind, number)
        out = root(number) if head == "sqrt" else divide(Float(False, Fraction(1)), number)
        return _finish(kind, out, direction, flags)

    return Reference(kind, (kind,), compute)


def _min_max(head: str, modifiers: list[str]) -> Reference:
    kind, flags = modifiers[-1], set(modifiers[:-1])
    base = kind.removesuffix("x2")

    def integers(a: int, b: int) -> int:
        out = (min if head == "min" else max)(as_int(kind, a), as_int(kind, b))
        return as_bits(kind, max(out, 0) if "relu" in flags else out)

    if not is_float(base):
        return Reference(kind, (kind, kind), integers)

    def one(a: int, b: int) -> int:
        x, y = (decode(base, v) for v in (a, b))
        if "ftz" in flags:
            x, y = flush(base, x), flush(base, y)
        top = width(base) - 1
        sign = (a ^ b) >> top & 1
        if "abs" in flags:
            x, y = (Float(False, n.value, n.infinite) for n in (x, y))
        out = minimum(x, y, largest=head == "max", keeps_nan="NaN" in flags)
        bits = encode(base, out)
        if "xorsign" in flags and bits != NAN:
            bits = bits & ~(1 << top) | sign << top
        return bits

    return Reference(kind, (kind, kind), _lanes(kind, one))


def _neg_abs(head: str, modifiers: list[str]) -> Reference:
    kind, flags = modifiers[-1], set(modifiers[:-1])
    base = kind.removesuffix("x2")

    def integer(a: int) -> int:
        value = as_int(kind, a)
        return as_bits(kind, -value if head == "neg" else abs(value))

    def one(a: int) -> int:
        number = decode(base, a)
        if number.nan:
            return NAN
        if "ftz" in flags:
            number = flush(base, number)
        negative = not number.negative if head == "neg" else False
        return encode(base, Float(negative, number.value, number.infinite))

    return Reference(kind, (kind,), _lanes(kind, one) if is_float(base) else integer)


def _logic(head: str, modifiers: list[str]) -> Reference:
    kind = modifiers[-1]
    mask = (1 << width(kind)) - 1
    table: dict[str, Compute] = {
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "not": lambda a: ~a & mask, "cnot": lambda a: int(a == 0), "mov": lambda a: a,
    }  # fmt: skip
    arity = 2 if head in ("and", "or", "xor") else 1
    return Reference(kind, (kind,) * arity, table[head])


def _shift(head: str, modifiers: list[str]) -> Reference:
    kind = modifiers[-1]

    def compute(a: int, amount: int) -> int:
        amount = min(amount, width(kind))
        if head == "shl":
            return as_bits(kind, a << amount)
        return as_bits(kind, as_int(kind, a) >> amount)

    return Reference(kind, (kind, "u32"), compute)


def _count(head: str, modifiers: list[str]) -> Reference:
    kind = modifiers[-1]
    bits = width(kind)

    def find(a: int) -> int:
        value = as_int(kind, a)
        value = ~value if value < 0 else value
        if value == 0:
            return 0xFFFFFFFF
        at = value.bit_length() - 1
        return bits - 1 - at if "shiftamt" in modifiers else at

    table: dict[str, Compute] = {
        "popc": lambda a: a.bit_count(), "clz": lambda a: bits - a.bit_length(),
        "brev": lambda a: int(f"{a:0{bits}b}"[::-1], 2), "bfind": find,
    }  # fmt: skip
    return Reference(kind if head == "brev" else "u32", (kind,), table[head])


def _bits(head: str, modifiers: list[str]) -> Reference:
    kind = next((m for m in modifiers if m[-1].isdigit() and m[0] in "bsu"), "b32")
    bits = width(kind)

    def bfe(a: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        sign = 0
        if kind[0] == "s" and length:
            sign = a >> min(start + length - 1, bits - 1) & 1
        out = 0
        for i in range(bits):
            bit = a >> (start + i) & 1 if i < length and start + i < bits else sign
            out |= bit << i
        return out

    def bfi(a: int, b: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        mask = ((1 << length) - 1) << start & ((1 << bits) - 1)
        return b & ~mask | (a << start & mask)

    def bmsk(a: int, b: int) -> int:
        if modifiers[0] == "clamp":
            return ((1 << min(b, 32)) - 1) << min(a, 32) & 0xFFFFFFFF
        return ((1 << (b & 31)) - 1) << (a & 31) & 0xFFFFFFFF

    def szext(a: int, n: int) -> int:
        n = n & 31 if modifiers[0] == "wrap" else min(n, 32)
        if n == 0:
            return 0
        part = a & ((1 << n) - 1)
        return as_bits("u32", part - (1 << n)) if kind[0] == "s" and part >> (n - 1) else part

    def fns(mask: int, base: int, offset: int) -> int:
        offset = as_int("s32", offset)
        if base > 31:
            return 0xFFFFFFFF
        if offset == 0:
            return base if mask >> base & 1 else 0xFFFFFFFF
        step, left, at = (1, offset, base) if offset > 0 else (-1, -offset, base)
        while 0 <= at < 32:
            left -= mask >> at & 1
            if left == 0:
                return at
            at += step
        return 0xFFFFFFFF

    def shf(a: int, b: int, c: int) -> int:
        n = c & 31 if modifiers[1] == "wrap" else min(c, 32)
        both = b << 32 | a
        return (both << n >> 32 if modifiers[0] == "l" else both >> n) & 0xFFFFFFFF

    def lop3(a: int, b: int, c: int, table: int) -> int:
        out = 0
        for bit in range(32):
            index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
            out |= (table >> index & 1) << bit
        return out

    u = "u32"
    table: dict[str, tuple[str, tuple[str, ...], Compute]] = {
        "bfe": (kind, (kind, u, u), bfe), "bfi": (kind, (kind, kind, u, u), bfi),
        "bmsk": (u, (u, u), bmsk), "szext": (u, (u, u), szext), "fns": (u, (u, u, u), fns),
        "shf": (u, (u, u, u), shf), "lop3": (u, (u, u, u, "u8"), lop3),
        "prmt": (u, (u, u, u), _permute(modifiers[1] if len(modifiers) > 1 else "")),
    }  # fmt: skip
    return Reference(*table[head])


def _permute(mode: str) -> Compute:
    def compute(a: int, b: int, c: int) -> int:
        pool = [(b << 32 | a) >> 8 * i & 255 for i in range(8)]
        n = c & 3
        picks = {
            "": [c >> 4 * i & 15 for i in range(4)],
            "f4e": [n + i for i in range(4)],
            "b4e": [(n - i) & 7 for i in range(4)],
            "rc8": [n] * 4,
            "ecl": [max(i, n) for i in range(4)],
            "ecr": [min(i, n) for i in range(4)],
            "rc16": [(n & 1) * 2 + (i & 1) for i in range(4)],
        }[mode]
        out = 0
        for i, pick in enumerate(picks):
            byte = pool[pick & 7]
            if pick & 8:
                byte = 255 if byte >> 7 else 0
            out |= byte << 8 * i
        return out

    return compute


def _sums(head: str, modifiers: list[str]) -> Reference:
    kinds = [m for m in modifiers if m[0] in "su"]

    def parts(kind: str, value: int, bits: int) -> list[int]:
        return [as_int(f"{kind[0]}{bits}", value >> i) for i in range(0, 32, bits)]

    def dp4a(a: int, b: int, c: int) -> int:
        pairs = zip(parts(kinds[0], a, 8), parts(kinds[1], b, 8), strict=True)
        return c + sum(x * y for x, y in pairs) & 0xFFFFFFFF

    def dp2a(a: int, b: int, c: int) -> int:
        half = parts(kinds[1], b, 8)[2 if "hi" in modifiers else 0 :][:2]
        return (
            c + sum(x * y for x, y in zip(parts(kinds[0], a, 16), half, strict=True)) & 0xFFFFFFFF
        )

    def sad(a: int, b: int, c: int) -> int:
        return as_bits(kinds[0], c + abs(as_int(kinds[0], a) - as_int(kinds[0], b)))

    def vabsdiff4(a: int, b: int, c: int) -> int:
        lanes = [abs(x - y) for x, y in zip(parts("u", a, 8), parts("u", b, 8), strict=True)]
        if "add" in modifiers:
            return c + sum(lanes) & 0xFFFFFFFF
        return sum(lane << 8 * i for i, lane in enumerate(lanes))

    table: dict[str, Compute] = {"dp4a": dp4a, "dp2a": dp2a, "sad": sad, "vabsdiff4": vabsdiff4}
    kind = kinds[0] if head == "sad" else "u32"
    return Reference(kind, (kind,) * 3, table[head])


def _test(name: str, kind: str, a: int, b: int, flags: set[str]) -> bool:
    if is_float(kind):
        x, y = decode(kind, a), decode(kind, b)
        if "ftz" in flags:
            x, y = flush(kind, x), flush(kind, y)
        unordered = x.nan or y.nan
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u") and name in ("equ", "neu", "ltu", "leu", "gtu", "geu")
        name = name[:2]
        below, above = less(x, y), less(y, x)
    else:
        i, j = as_int(kind, a), as_int(kind, b)
        name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
        below, above = i < j, i > j
    return {"eq": not (below or above), "ne": below or above, "lt": below, "le": not above,
            "gt": above, "ge": not below}[name]  # fmt: skip


def _compare(head: str, modifiers: list[str]) -> Reference:
    name, flags = modifiers[0], set(modifiers)
    kind = modifiers[-1]
    base = kind.removesuffix("x2")
    if head == "setp":
        return Reference("pred", (kind, kind), lambda a, b: int(_test(name, kind, a, b, flags)))
    target = modifiers[-2]
    packed = kind.endswith("x2")
    ones = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}
    if packed and target == kind:
        true = ones[base]
    elif packed:
        true = 0xFFFF
    else:
        true = ones.get(target, (1 << width(target)) - 1)

    def one(a: int, b: int) -> int:
        return true if _test(name, base, a, b, flags) else 0

    return Reference("u32" if packed else target, (kind, kind), _lanes(kind, one))


def _select(head: str, modifiers: list[str]) -> Reference:
    kind = next(m for m in modifiers if m != "ftz")
    if head == "selp":
        return Reference(kind, (kind, kind, "pred"), lambda a, b, p: a if p else b)
    selector = modifiers[-1]

    def compute(a: int, b: int, c: int) -> int:
        if selector == "s32":
            return a if as_int("s32", c) >= 0 else b
        number = decode("f32", c)
        if "ftz" in modifiers:
            number = flush("f32", number)
        return b if number.nan or (number.negative and not number.zero) else a

    return Reference(kind, (kind, kind, selector), compute)


def _testp(head: str, modifiers: list[str]) -> Reference:
    name, kind = modifiers

    def compute(a: int) -> int:
        number = decode(kind, a)
        finite = number.value is not None
        subnormal = finite and not number.zero and flush(kind, number).zero
        return int({"finite": finite, "infinite": number.infinite, "number": not number.nan,
                    "notanumber": number.nan, "subnormal": subnormal,
                    "normal": finite and not number.zero and not subnormal}[name])  # fmt: skip

    return Reference("pred", (kind,), compute)


def _copysign(head: str, modifiers: list[str]) -> Reference:
    kind = modifiers[0]
    top = 1 << (width(kind) - 1)

    def compute(a: int, b: int) -> int:
        return NAN if decode(kind, b).nan else b & ~top | a & top

    return Reference(kind, (kind, kind), compute)


# --- conversions ----------------------------------------------------------------------------------


def _convert(head: str, modifiers: list[str]) -> Reference | None:
    source, target = modifiers[-1], modifiers[-2]
    flags = set(modifiers[:-2])
    way = next((w for w in ("rni", "rzi", "rmi", "rpi") if w in flags), "")
    direction = next((d for d in ("rna", *DIRECTIONS) if d in flags), "rn")
    if target.endswith("x2"):
        base = target.removesuffix("x2")

        def pack(a: int, b: int) -> int:
            parts = [_finish(base, decode("f32", v), direction, flags) for v in (b, a)]
            return sum((0x7FFF if p == NAN else p) << 16 * i for i, p in enumerate(parts))

        return Reference(target, ("f32", "f32"), pack)

    def compute(a: int) -> int:
        if not is_float(source):
            value = as_int(source, a)
            if not is_float(target):
                return as_bits(target, clamp_int(target, value) if "sat" in flags else value)
            return _finish(target, signed(Fraction(value)), direction, flags - {"ftz"})
        number = decode(source, a)
        if "ftz" in flags and source == "f32":
            number = flush(source, number)
        if way:
            number = integral(number, way)
        if is_float(target):
            keep = flags if target == "f32" else flags - {"ftz"}
            return _finish(target, number, direction, keep)
        if number.nan:
            return 0
        if number.infinite:
            low, high = clamp_int(target, -(1 << 70)), clamp_int(target, 1 << 70)
            return as_bits(target, low if number.negative else high)
        return as_bits(target, clamp_int(target, int(number.exact)))

    if target == "tf32":

        def to_tf32(a: int) -> int:
            bits = _finish("tf32", decode("f32", a), direction, flags)
            return NAN if bits == NAN else bits << 13

        return Reference("tf32", ("f32",), to_tf32)
    return Reference(target, (source,), compute)
