"""Forms of `cvt`: every pair of types, every rounding, saturation and clamping.

Out-of-range floats clamp to the integer range and NaN gives 0, as the PTX manual says of cvt.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from coding_framework.cuda.emulator.forms import C_TYPE, ROUNDING, SIZE, Flags, Form, one_of

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOATS = ("f16", "bf16", "f32", "f64")
_TO_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def convert(modifiers: list[str]) -> Form | None:
    """The form of cvt with these modifiers, the last two being the types."""
    if len(modifiers) < 2:
        return None
    source, target = modifiers.pop(), modifiers.pop()
    flags = frozenset(modifiers)
    if len(flags) != len(modifiers):
        return None
    if source == "f32" and target in ("f16x2", "bf16x2"):
        return _packed(target, flags)
    if source == "f32" and target == "tf32":
        return _tf32(flags)
    if target in _INTEGERS and source in _INTEGERS:
        return _integers(target, source, flags)
    if target in _INTEGERS and source in _FLOATS:
        return _to_integer(target, source, flags)
    if target in _FLOATS and source in _INTEGERS:
        return _from_integer(target, source, flags)
    if target in _FLOATS and source in _FLOATS:
        return _floats(target, source, flags)
    return None


def _value(kind: str) -> str:
    """The operand as a C float or double."""
    return f"{kind}_f(A)" if kind in ("f16", "bf16") else "A"


def _limits(kind: str) -> tuple[str, str]:
    bits = int(kind[1:])
    if kind[0] == "u":
        return "0", str((1 << bits) - 1) + ("ull" if bits == 64 else "u" if bits == 32 else "")
    if bits == 64:
        return "INT64_MIN", "INT64_MAX"
    return (f"(-{(1 << (bits - 1)) - 1}-1)", str((1 << (bits - 1)) - 1))


def _integers(target: str, source: str, flags: Flags) -> Form | None:
    if flags - {"sat"}:
        return None
    to, of = C_TYPE[target], C_TYPE[source]
    if not flags:
        return Form(to, (of,), f"({to})A")
    low, high = _limits(target)
    tests = []
    if source[0] == "s" and (target[0] == "u" or int(source[1:]) > int(target[1:])):
        tests.append(f"A<{low}?({to}){low}")
    limit = int(target[1:]) - (target[0] == "s")
    if int(source[1:]) - (source[0] == "s") > limit:
        tests.append(f"A>{high}?({to}){high}")
    return Form(to, (of,), f"({':'.join([*tests, f'({to})A'])})")


def _to_integer(target: str, source: str, flags: Flags) -> Form | None:
    way = one_of(flags, _TO_INTEGRAL)
    if not way or flags - {way, "ftz", "sat"}:
        return None
    to, bits = C_TYPE[target], int(target[1:])
    double = source == "f64"
    value = f"{_TO_INTEGRAL[way]}{'' if double else 'f'}({_value(source)})"
    if "ftz" in flags and source == "f32":
        value = value.replace("(A)", "(FTZ(A))")
    suffix = "" if double else "f"
    if target[0] == "u":
        top, bottom = f"{float(1 << bits)!r}{suffix}", f"0.0{suffix}"
    else:
        top, bottom = f"{float(1 << (bits - 1))!r}{suffix}", f"-{float(1 << (bits - 1))!r}{suffix}"
    low, high = _limits(target)
    name = "f64" if double else "f32"
    clamp = f"t_!=t_?0:t_>={top}?({to}){high}:t_<={bottom}?({to}){low}:({to})t_"
    expr = f"({{{name} t_={value}; {clamp};}})"
    return Form(to, (C_TYPE[source],), expr)


def _from_integer(target: str, source: str, flags: Flags) -> Form | None:
    direction = one_of(flags, ROUNDING)
    if not direction or flags - {direction, "sat"}:
        return None
    if target in ("f16", "bf16"):
        if flags != {"rn"}:
            return None
        return Form(target, (C_TYPE[source],), f"{target}_r(odd_{source[0]}64(A))")
    expr = f"({target})A"
    if "sat" in flags:
        expr = f"SAT{'F' if target == 'f32' else 'D'}({expr})"
    return Form(target, (C_TYPE[source],), expr, ROUNDING[direction])


def _floats(target: str, source: str, flags: Flags) -> Form | None:
    integral, direction = one_of(flags, _TO_INTEGRAL), one_of(flags, ROUNDING)
    if integral is None or direction is None:
        return None
    ftz, relu = "ftz" in flags, "relu" in flags
    narrows = SIZE[C_TYPE[target]] < SIZE[C_TYPE[source]] or {target, source} == {"f16", "bf16"}
    if flags - {integral, direction, "ftz", "sat", "relu"} or (integral and target != source):
        return None
    if narrows and not direction:
        return None
    if relu and target not in ("f16", "bf16"):
        return None
    value = _value(source)
    if ftz and source == "f32":
        value = f"FTZ({value})"
    if integral:
        value = f"{_TO_INTEGRAL[integral]}{'' if source == 'f64' else 'f'}({value})"
    if "sat" in flags:
        value = f"SAT{'D' if source == 'f64' else 'F'}({value})"
    if relu:
        value = f"RELUD({value})"
    if target in ("f16", "bf16"):
        if direction in ("rm", "rp"):
            return None
        return Form(
            target, (C_TYPE[source],), f"{target}_{'z' if direction == 'rz' else 'r'}({value})"
        )
    if target == "f32" and ftz:
        value = f"FTZ((f32)({value}))"
    rounding = ROUNDING.get(direction, "") if narrows else ""
    return Form(target, (C_TYPE[source],), f"({target})({value})", rounding)


def _packed(target: str, flags: Flags) -> Form | None:
    """cvt.rn.f16x2.f32 d, a, b: a goes to the upper half."""
    direction = one_of(flags, ("rn", "rz"))
    if not direction or flags - {direction, "relu"}:
        return None
    base = target.removesuffix("x2")
    suffix = "z" if direction == "rz" else "r"
    a, b = (f"RELUD({x})" if "relu" in flags else x for x in "AB")
    return Form(
        target, ("f32", "f32"), f"((u32){base}_{suffix}({b})|(u32){base}_{suffix}({a})<<16)"
    )


def _tf32(flags: Flags) -> Form | None:
    direction = one_of(flags, ("rna", "rn", "rz"))
    if not direction or flags - {direction, "relu", "satfinite"}:
        return None
    value = "RELUF(A)" if "relu" in flags else "A"
    return Form("u32", ("f32",), f"tf32_{direction}({value})")


def conversion_spellings() -> Iterable[str]:
    """Spellings that reach every form of cvt."""
    ways = ("", ".rn", ".rz", ".rm", ".rp", ".rni", ".rzi", ".rmi", ".rpi")
    flags = ("", ".ftz", ".sat", ".ftz.sat", ".relu")
    kinds = (*_INTEGERS, *_FLOATS)
    for way, flag, target, source in product(ways, flags, kinds, kinds):
        yield f"cvt{way}{flag}.{target}.{source}"
    for way, relu, target in product(("rn", "rz"), ("", ".relu"), ("f16x2", "bf16x2")):
        yield f"cvt.{way}{relu}.{target}.f32"
    for way, relu in product(("rna", "rn", "rz"), ("", ".relu")):
        yield f"cvt.{way}{relu}.tf32.f32"
