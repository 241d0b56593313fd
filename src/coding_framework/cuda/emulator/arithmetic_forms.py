"""Forms of arithmetic: floating point in every rounding, halves, integers, carries."""

from __future__ import annotations

from coding_framework.cuda.emulator.forms import (
    C_TYPE,
    HALVES,
    INTEGERS,
    ROUNDING,
    SIZE,
    WIDER,
    Form,
    Maker,
    half_part,
    half_value,
    joined,
    take,
)

# --- floating point -------------------------------------------------------------------------------


def _float(
    modifiers: list[str], kind: str, arity: int, expr: str, *, rounds: bool = True
) -> Form | None:
    """An f32 or f64 operation with .rnd, .ftz and .sat; `expr` over A, B, C."""
    rounding = take(modifiers, *ROUNDING) if rounds else ""
    ftz, sat = take(modifiers, "ftz"), take(modifiers, "sat")
    if modifiers or (kind == "f64" and (ftz or sat)):
        return None
    if ftz:
        for name in "ABC"[:arity]:
            expr = expr.replace(name, f"FTZ({name})")
        expr = f"FTZ({expr})"
    if sat:
        expr = f"SATF({expr})"
    return Form(kind, (kind,) * arity, expr, ROUNDING.get(rounding, ""))


def _half(modifiers: list[str], kind: str, name: str, arity: int) -> Form | None:
    """An f16 or bf16 operation, scalar or packed: computed in wider precision, rounded once."""
    take(modifiers, "rn")
    flags = [take(modifiers, m) for m in ("ftz", "noftz", "sat", "relu", "oob")]
    ftz, _, sat, relu, oob = flags
    if modifiers or oob or (kind.startswith("bf16") and (sat or ftz)):
        return None
    base = kind.removesuffix("x2")
    inner = {
        "add": "(f64){0}+(f64){1}",
        "sub": "(f64){0}-(f64){1}",
        "mul": "(f64){0}*(f64){1}",
        "fma": "fma_odd({0},{1},{2})",
    }[name]

    def one(suffix: str) -> str:
        values = [f"{base}_f({half_part(kind, x, suffix)})" for x in "ABC"[:arity]]
        if ftz:
            values = [f"ftz_half({v})" for v in values]
        value = inner.format(*values)
        if sat:
            value = f"SATD({value})"
        if relu:
            value = f"RELUD({value})"
        out = f"{base}_r({value})"
        return f"ftz_{base}({out})" if ftz else out

    return Form(kind, (kind,) * arity, joined(kind, one))


def _packed_f32(modifiers: list[str], expr: str, arity: int) -> Form | None:
    """f32x2 of sm_100: two floats in 64 bits, rounded to nearest."""
    rounding = take(modifiers, *ROUNDING)
    if modifiers:
        return None

    def one(suffix: str) -> str:
        text = expr
        for name in "ABC"[:arity]:
            text = text.replace(name, f"{suffix}f({name})")
        return text

    joined = f"pairf({one('lo')},{one('hi')})"
    return Form("f32x2", ("f32x2",) * arity, joined, ROUNDING.get(rounding, ""))


def arithmetic(name: str, sign: str) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if kind in ("f32", "f64"):
            return _float(modifiers, kind, 2, f"A{sign}B")
        if kind == "f32x2":
            return _packed_f32(modifiers, f"(A{sign}B)", 2)
        if kind in HALVES:
            return _half(modifiers, kind, name, 2)
        if kind not in (*INTEGERS, "s64", "u64"):
            return None
        carry = take(modifiers, "cc")
        if carry:
            return None if modifiers else _carry_form(name, kind, False, True)
        if take(modifiers, "sat"):
            wide = f"(i64)A{sign}(i64)B"
            return Form("i32", ("i32",) * 2, f"SATI({wide})") if kind == "s32" else None
        return None if modifiers else _integer(kind, 2, f"A{sign}B")

    return make


def _integer(kind: str, arity: int, expr: str) -> Form:
    """Wrapping integer arithmetic: computed on the unsigned type, so that overflow is defined."""
    c_type = C_TYPE[kind]
    unsigned = "u" + c_type[1:]
    for name in "ABC"[:arity]:
        expr = expr.replace(name, f"({unsigned}){name}")
    return Form(c_type, (c_type,) * arity, f"({c_type})({expr})")


def _carry_form(name: str, kind: str, takes: bool, gives: bool) -> Form | None:
    if kind not in ("s32", "u32", "s64", "u64"):
        return None
    bits = kind[1:]
    unsigned = f"u{bits}"
    function = f"{'addc' if name == 'add' else 'subc'}{bits}"
    flags = f"{'X' if takes else '0'},{'&X' if gives else '0'}"
    return Form(unsigned, (unsigned,) * 2, f"{function}(A,B,{flags})", carry=True)


def carry(name: str) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        gives = bool(take(modifiers, "cc"))
        kind = modifiers.pop() if modifiers else ""
        return None if modifiers else _carry_form(name, kind, True, gives)

    return make


def mul(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if kind in ("f32", "f64"):
        return _float(modifiers, kind, 2, "A*B")
    if kind == "f32x2":
        return _packed_f32(modifiers, "(A*B)", 2)
    if kind in HALVES:
        return _half(modifiers, kind, "mul", 2)
    part = take(modifiers, "lo", "hi", "wide")
    if modifiers or kind not in INTEGERS:
        return None
    return _multiply(kind, part, "")


def _multiply(kind: str, part: str, addend: str) -> Form | None:
    c_type = C_TYPE[kind]
    more = (
        (C_TYPE[WIDER[kind]],)
        if part == "wide" and kind in WIDER and addend
        else ((c_type,) if addend else ())
    )
    if part == "lo":
        # u16 operands promote to int, whose product may overflow: go through u32
        wide = "u32" if SIZE[c_type] < 4 else "u" + c_type[1:]
        tail = f"+({wide})C" if addend else ""
        return Form(c_type, (c_type,) * 2 + more, f"({c_type})(({wide})A*({wide})B{tail})")
    if part == "wide" and kind in WIDER:
        wide = C_TYPE[WIDER[kind]]
        unsigned = "u" + wide[1:]
        tail = f"+({unsigned})C" if addend else ""
        expr = f"({wide})(({unsigned})({wide})A*({unsigned})({wide})B{tail})"
        return Form(wide, (c_type,) * 2 + more, expr)
    if part == "hi":
        if SIZE[c_type] == 8:
            wide = "i128" if c_type[0] == "i" else "u128"
        else:
            wide = C_TYPE[WIDER[kind]]
        product_ = f"(({wide})A*({wide})B)>>{8 * SIZE[c_type]}"
        unsigned = "u" + c_type[1:]
        tail = f"+({unsigned})C" if addend else ""
        return Form(c_type, (c_type,) * 2 + more, f"({c_type})(({unsigned})({product_}){tail})")
    return None


def mad(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if kind in ("f32", "f64"):
        return fma([*modifiers, kind])
    if kind not in INTEGERS:
        return None
    part = take(modifiers, "lo", "hi", "wide")
    if take(modifiers, "cc"):
        return None if modifiers else _mad_carry(kind, part, False, True)
    if take(modifiers, "sat"):
        expr = "SATI((((i64)A*(i64)B)>>32)+(i64)C)"
        same = kind == "s32" and part == "hi" and not modifiers
        return Form("i32", ("i32",) * 3, expr) if same else None
    return None if modifiers else _multiply(kind, part, "C")


def madc(modifiers: list[str]) -> Form | None:
    gives = bool(take(modifiers, "cc"))
    part = take(modifiers, "lo", "hi")
    kind = modifiers.pop() if modifiers else ""
    return None if modifiers else _mad_carry(kind, part, True, gives)


def _mad_carry(kind: str, part: str, takes: bool, gives: bool) -> Form | None:
    base = _multiply(kind, part, "") if part in ("lo", "hi") and kind in INTEGERS[2:] else None
    if base is None:
        return None
    unsigned = "u" + base.dst[1:]
    function = f"addc{kind[1:]}"
    flags = f"{'X' if takes else '0'},{'&X' if gives else '0'}"
    expr = f"{function}(({unsigned})({base.expr}),({unsigned})C,{flags})"
    return Form(base.dst, (*base.src, base.dst), expr, carry=True)


def fma(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if kind in ("f32", "f64"):
        return _float(modifiers, kind, 3, f"FMA{kind[1:]}(A,B,C)".replace("FMA", "fma_"))
    if kind == "f32x2":
        return _packed_f32(modifiers, "fma_32(A,B,C)", 3)
    return _half(modifiers, kind, "fma", 3) if kind in HALVES else None


def div(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if kind in ("f32", "f64"):
        how = take(modifiers, "approx", "full") if kind == "f32" else ""
        return _float(modifiers, kind, 2, "fast_div(A,B)" if how == "approx" else "A/B")
    if modifiers or kind not in INTEGERS:
        return None
    c_type = C_TYPE[kind]
    if c_type[0] == "u":
        return Form(c_type, (c_type,) * 2, f"(B?({c_type})(A/B):({c_type})-1)")
    # the quotient of the smallest value and -1 wraps; by zero it is all ones, as the GPU gives
    return Form(
        c_type, (c_type,) * 2, f"(B==0?({c_type})-1:B==-1?({c_type})(0-(u64)A):({c_type})(A/B))"
    )


def rem(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if modifiers or kind not in INTEGERS:
        return None
    c_type = C_TYPE[kind]
    guard = "B==0?A:B==-1?0:" if c_type[0] == "i" else "B==0?A:"
    return Form(c_type, (c_type,) * 2, f"({guard}({c_type})(A%B))")


def unary_float(expr32: str, expr64: str = "", *, approximate: bool = False) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if kind not in ("f32", "f64") or (kind == "f64" and not expr64):
            return None
        approx = take(modifiers, "approx")
        if approximate and not approx and not any(r in modifiers for r in ROUNDING):
            return None
        if kind == "f64" and approx:
            return None
        return _float(modifiers, kind, 1, expr32 if kind == "f32" else expr64)

    return make


def reciprocal(name: str) -> Maker:
    """rcp and rsqrt: .approx.ftz.f64 gives only the upper 32 bits of the result."""
    single = {"rcp": "1.0f/A", "rsqrt": "1.0f/sqrtf(A)"}[name]
    double = {"rcp": "1.0/A", "rsqrt": "1.0/sqrt(A)"}[name]

    def make(modifiers: list[str]) -> Form | None:
        if modifiers[-1] == "f64" and "approx" in modifiers:
            if name == "rcp" and modifiers != ["approx", "ftz", "f64"]:
                return None
            keep = "ftz" in modifiers
            rest = [m for m in modifiers if m not in ("approx", "ftz", "f64")]
            if rest:
                return None
            expr = f"FTZD({double.replace('A', 'FTZD(A)')})" if keep else double
            return Form("f64", ("f64",), f"upper32({expr})" if keep else expr)
        return unary_float(single, double if name == "rcp" else "", approximate=True)(modifiers)

    return make


def approximate(name: str) -> Maker:
    """ex2, lg2, sin, cos, tanh."""

    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if kind == "f32":
            if not take(modifiers, "approx"):
                return None
            return _float(modifiers, "f32", 1, f"{name}_approx(A)", rounds=False)
        if kind not in HALVES or name not in ("ex2", "tanh") or not take(modifiers, "approx"):
            return None
        take(modifiers, "ftz")
        if modifiers:
            return None
        base = kind.removesuffix("x2")
        expr = joined(
            kind, lambda s: f"{base}_r({name}_approx({base}_f({half_part(kind, 'A', s)})))"
        )
        return Form(kind, (kind,), expr)

    return make


def min_max(name: str) -> Maker:
    sign = "<" if name == "min" else ">"

    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if kind in INTEGERS:
            if take(modifiers, "relu"):
                same = kind == "s32" and not modifiers
                return Form("i32", ("i32",) * 2, f"RELUI(A{sign}B?A:B)") if same else None
            c_type = C_TYPE[kind]
            return None if modifiers else Form(c_type, (c_type,) * 2, f"(A{sign}B?A:B)")
        nan, swap = take(modifiers, "NaN"), take(modifiers, "xorsign")
        absolute, ftz = take(modifiers, "abs"), take(modifiers, "ftz")
        if modifiers or bool(swap) != bool(absolute):
            return None
        if kind in ("f32", "f64"):
            suffix = "f" if kind == "f32" else "d"
            function = f"{name}{'_nan' if nan else ''}_{suffix}"
            a, b = ("FTZ(A)", "FTZ(B)") if ftz else ("A", "B")
            if swap:
                expr = f"xorsign_f({function}(fabsf({a}),fabsf({b})),A,B)"
            else:
                expr = f"{function}({a},{b})"
            return None if kind == "f64" and (ftz or swap) else Form(kind, (kind,) * 2, expr)
        if kind not in HALVES or swap or (ftz and kind.startswith("bf16")):
            return None
        base = kind.removesuffix("x2")
        function = f"{name}{'_nan' if nan else ''}_f"

        def one(s: str) -> str:
            a, b = (half_value(base, half_part(kind, x, s), ftz) for x in "AB")
            return f"{base}_r({function}({a},{b}))"

        return Form(kind, (kind,) * 2, joined(kind, one))

    return make


def _flushed_sign(name: str, kind: str) -> Form | None:
    """neg.ftz and abs.ftz of halves; bfloat16 has none."""
    if kind.startswith("bf16"):
        return None
    function = "-" if name == "neg" else "fabsf"

    def one(s: str) -> str:
        return f"f16_r({function}({half_value('f16', half_part(kind, 'A', s), 'ftz')}))"

    return Form(kind, (kind,), joined(kind, one))


def neg_abs(name: str) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        ftz = take(modifiers, "ftz")
        if modifiers or (ftz and kind != "f32" and kind not in HALVES):
            return None
        if kind in ("f32", "f64"):
            function = "fabsf" if kind == "f32" else "fabs"
            value = "FTZ(A)" if ftz else "A"
            return Form(kind, (kind,), f"-{value}" if name == "neg" else f"{function}({value})")
        if kind in HALVES and ftz:
            return _flushed_sign(name, kind)
        if kind in HALVES:
            mask = "0x80008000u" if kind.endswith("x2") else "0x8000u"
            return Form(kind, (kind,), f"A^{mask}" if name == "neg" else f"A&~{mask}")
        if kind not in INTEGERS:
            return None
        c_type = C_TYPE[kind]
        unsigned = "u" + c_type[1:]
        negated = f"({c_type})(0-({unsigned})A)"
        return Form(c_type, (c_type,), negated if name == "neg" else f"(A<0?{negated}:A)")

    return make


def copysign(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if modifiers or kind not in ("f32", "f64"):
        return None
    return Form(kind, (kind,) * 2, f"copysign{'f' if kind == 'f32' else ''}(B,A)")


def testp(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if len(modifiers) != 1 or kind not in ("f32", "f64"):
        return None
    s = "f" if kind == "f32" else "d"
    magnitude = f"fabs{s.rstrip('d')}(A)"
    smallest = "1.17549435e-38f" if s == "f" else "2.2250738585072014e-308"
    infinite = "__builtin_inff()" if s == "f" else "__builtin_inf()"
    test = {
        "finite": f"{magnitude}<{infinite}",
        "infinite": f"{magnitude}=={infinite}",
        "number": "A==A",
        "notanumber": "A!=A",
        "normal": f"({magnitude}>={smallest}&&{magnitude}<{infinite})",
        "subnormal": f"({magnitude}<{smallest}&&A!=0)",
    }.get(modifiers[0])
    return Form("u32", (kind,), f"-(u32)({test})") if test else None
