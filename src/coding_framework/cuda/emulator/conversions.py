"""Forms of `cvt`: every pair of types, every rounding, saturation and clamping.

Out-of-range floats clamp to the integer range and NaN gives 0, as the PTX manual says of cvt.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from coding_framework.cuda.emulator.forms import C_TYPE, SIZE, Form

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOATS = ("f16", "bf16", "f32", "f64")
_TO_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_DIRECTION = {"rn": "", "rz": "RZ", "rm": "RM", "rp": "RP"}


def convert(modifiers: list[str]) -> Form | None:
    """The form of cvt with these modifiers, the last two being the types."""
    if len(modifiers) < 2:
        return None
    source, target = modifiers.pop(), modifiers.pop()
    flags = set(modifiers)
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


def _one(flags: set[str], choices: Iterable[str]) -> str:
    """The one flag among `choices`, removed; "" where there is none."""
    found = [f for f in choices if f in flags]
    flags.difference_update(found)
    return found[0] if len(found) == 1 else ""


def _drop(flags: set[str], flag: str) -> bool:
    there = flag in flags
    flags.discard(flag)
    return there


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


def _integers(target: str, source: str, flags: set[str]) -> Form | None:
    saturate = _drop(flags, "sat")
    if flags:
        return None
    to, of = C_TYPE[target], C_TYPE[source]
    if not saturate:
        return Form(to, (of,), f"({to})A")
    low, high = _limits(target)
    tests = []
    if source[0] == "s" and (target[0] == "u" or int(source[1:]) > int(target[1:])):
        tests.append(f"A<{low}?({to}){low}")
    limit = int(target[1:]) - (target[0] == "s")
    if int(source[1:]) - (source[0] == "s") > limit:
        tests.append(f"A>{high}?({to}){high}")
    return Form(to, (of,), f"({':'.join([*tests, f'({to})A'])})")


def _to_integer(target: str, source: str, flags: set[str]) -> Form | None:
    way = _one(flags, _TO_INTEGRAL)
    ftz = _drop(flags, "ftz")
    _drop(flags, "sat")
    if flags or not way:
        return None
    to, bits = C_TYPE[target], int(target[1:])
    double = source == "f64"
    value = f"{_TO_INTEGRAL[way]}{'' if double else 'f'}({_value(source)})"
    if ftz and source == "f32":
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


def _from_integer(target: str, source: str, flags: set[str]) -> Form | None:
    direction = _one(flags, _DIRECTION)
    saturate = _drop(flags, "sat")
    if flags or not direction:
        return None
    if target in ("f16", "bf16"):
        if direction != "rn" or saturate:
            return None
        return Form(target, (C_TYPE[source],), f"{target}_r(odd_{source[0]}64(A))")
    expr = f"({target})A"
    if saturate:
        expr = f"SAT{'F' if target == 'f32' else 'D'}({expr})"
    return Form(target, (C_TYPE[source],), expr, _DIRECTION[direction])


def _floats(target: str, source: str, flags: set[str]) -> Form | None:
    integral = _one(flags, _TO_INTEGRAL)
    direction = _one(flags, _DIRECTION)
    ftz, saturate = _drop(flags, "ftz"), _drop(flags, "sat")
    relu = _drop(flags, "relu")
    narrows = SIZE[C_TYPE[target]] < SIZE[C_TYPE[source]] or {target, source} == {"f16", "bf16"}
    if flags or (integral and target != source) or (narrows and not direction):
        return None
    if relu and target not in ("f16", "bf16"):
        return None
    value = _value(source)
    if ftz and source == "f32":
        value = f"FTZ({value})"
    if integral:
        value = f"{_TO_INTEGRAL[integral]}{'' if source == 'f64' else 'f'}({value})"
    if saturate:
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
    rounding = _DIRECTION.get(direction, "") if narrows else ""
    return Form(target, (C_TYPE[source],), f"({target})({value})", rounding)


def _packed(target: str, flags: set[str]) -> Form | None:
    """cvt.rn.f16x2.f32 d, a, b: a goes to the upper half."""
    direction = _one(flags, ("rn", "rz"))
    relu = _drop(flags, "relu")
    if flags or not direction:
        return None
    base = target.removesuffix("x2")
    suffix = "z" if direction == "rz" else "r"
    a, b = (f"RELUD({x})" if relu else x for x in "AB")
    return Form(
        target, ("f32", "f32"), f"((u32){base}_{suffix}({b})|(u32){base}_{suffix}({a})<<16)"
    )


def _tf32(flags: set[str]) -> Form | None:
    direction = _one(flags, ("rna", "rn", "rz"))
    relu = _drop(flags, "relu")
    _drop(flags, "satfinite")
    if flags or not direction:
        return None
    value = "RELUF(A)" if relu else "A"
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
