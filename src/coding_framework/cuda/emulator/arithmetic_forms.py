"""Forms of arithmetic: floating point in every rounding, halves, integers, carries."""

from __future__ import annotations

from collections.abc import Callable, Collection

from coding_framework.cuda.emulator.forms import (
    C_TYPE,
    FLOATS,
    HALVES,
    INTEGERS,
    ROUNDING,
    SIZE,
    WIDER,
    Flags,
    Form,
    Maker,
    Row,
    arity_of,
    half_part,
    half_value,
    joined,
    one_of,
    rows,
)

_PARTS = ("lo", "hi", "wide")
_CARRIED = INTEGERS[2:]
_HALF_FLAGS = ("rn", "ftz", "noftz", "sat", "relu")

# --- floating point -------------------------------------------------------------------------------


def _rounded(kind: str, flags: Flags, expr: str) -> Form | None:
    """An f32 or f64 operation with .rnd, .ftz and .sat; `expr` over A, B, C."""
    rounding, arity = one_of(flags, ROUNDING), arity_of(expr)
    if rounding is None or (kind == "f64" and flags & {"ftz", "sat"}):
        return None
    if "ftz" in flags:
        for name in "ABC"[:arity]:
            expr = expr.replace(name, f"FTZ({name})")
        expr = f"FTZ({expr})"
    if "sat" in flags:
        expr = f"SATF({expr})"
    return Form(kind, (kind,) * arity, expr, ROUNDING.get(rounding, ""))


def _float(
    f32: str,
    f64: str = "",
    *,
    needs: Collection[str] = (),
    may: Collection[str] = (*ROUNDING, "ftz", "sat"),
) -> Row:
    """The expressions of an f32 and of an f64; "": there is none."""
    exprs = {"f32": f32, "f64": f64}
    kinds = [kind for kind, expr in exprs.items() if expr]
    return Row(kinds, lambda kind, flags: _rounded(kind, flags, exprs[kind]), needs, may)


def _packed_f32(expr: str) -> Row:
    """f32x2 of sm_100: two floats in 64 bits, rounded to nearest."""

    def form(kind: str, flags: Flags) -> Form | None:
        def one(suffix: str) -> str:
            text = expr
            for name in names:
                text = text.replace(name, f"{suffix}f({name})")
            return text

        names, rounding = "ABC"[: arity_of(expr)], one_of(flags, ROUNDING)
        if rounding is None:
            return None
        both = f"pairf({one('lo')},{one('hi')})"
        return Form(kind, (kind,) * len(names), both, ROUNDING.get(rounding, ""))

    return Row(("f32x2",), form, (), ROUNDING)


def _half(inner: str) -> Row:
    """An f16 or bf16 operation, scalar or packed: computed in wider precision, rounded once."""

    def form(kind: str, flags: Flags) -> Form | None:
        if kind.startswith("bf16") and flags & {"sat", "ftz"}:
            return None
        base, names = kind.removesuffix("x2"), "ABC"[: inner.count("{")]
        ftz = "ftz" in flags

        def one(suffix: str) -> str:
            value = inner.format(
                *(half_value(base, half_part(kind, x, suffix), ftz) for x in names)
            )
            if "sat" in flags:
                value = f"SATD({value})"
            if "relu" in flags:
                value = f"RELUD({value})"
            out = f"{base}_r({value})"
            return f"ftz_{base}({out})" if ftz else out

        return Form(kind, (kind,) * len(names), joined(kind, one))

    return Row(HALVES, form, (), _HALF_FLAGS)


# --- integers -------------------------------------------------------------------------------------


def _same(expr: str) -> Callable[[str, Flags], Form]:
    """Of operands and a result of one C type, which the expression calls T, and U unsigned."""

    def form(kind: str, flags: Flags) -> Form:
        c_type = C_TYPE[kind]
        text = expr.replace("T", c_type).replace("U", "u" + c_type[1:])
        return Form(c_type, (c_type,) * arity_of(text), text)

    return form


def _saturated(expr: str, *needs: str) -> Row:
    return Row(("s32",), lambda *_: Form("i32", ("i32",) * arity_of(expr), expr), ("sat", *needs))


def _with_carry(name: str, kind: str, takes: bool, gives: bool) -> Form:
    unsigned = f"u{kind[1:]}"
    function = f"{'addc' if name == 'add' else 'subc'}{kind[1:]}"
    flags = f"{'X' if takes else '0'},{'&X' if gives else '0'}"
    return Form(unsigned, (unsigned,) * 2, f"{function}(A,B,{flags})", carry=True)


def arithmetic(name: str, sign: str) -> Maker:
    return rows(
        _float(f"A{sign}B", f"A{sign}B"),
        _packed_f32(f"(A{sign}B)"),
        _half(f"(f64){{0}}{sign}(f64){{1}}"),
        _saturated(f"SATI((i64)A{sign}(i64)B)"),
        Row(_CARRIED, lambda kind, flags: _with_carry(name, kind, False, True), ("cc",)),
        # on the unsigned type, so that overflow is defined
        Row(INTEGERS, _same(f"(T)((U)A{sign}(U)B)")),
    )


def carry(name: str) -> Maker:
    def form(kind: str, flags: Flags) -> Form:
        return _with_carry(name, kind, True, "cc" in flags)

    return rows(Row(_CARRIED, form, (), ("cc",)))


def _multiply(kind: str, part: str | None, addend: str) -> Form | None:
    c_type = C_TYPE[kind]
    if part not in _PARTS or (part == "wide" and kind not in WIDER):
        return None
    more = ((C_TYPE[WIDER[kind]] if part == "wide" else c_type),) if addend else ()
    if part == "lo":
        # u16 operands promote to int, whose product may overflow: go through u32
        wide = "u32" if SIZE[c_type] < 4 else "u" + c_type[1:]
        tail = f"+({wide})C" if addend else ""
        return Form(c_type, (c_type,) * 2 + more, f"({c_type})(({wide})A*({wide})B{tail})")
    if part == "wide":
        wide = C_TYPE[WIDER[kind]]
        unsigned = "u" + wide[1:]
        tail = f"+({unsigned})C" if addend else ""
        expr = f"({wide})(({unsigned})({wide})A*({unsigned})({wide})B{tail})"
        return Form(wide, (c_type,) * 2 + more, expr)
    wide = c_type[0] + "128" if SIZE[c_type] == 8 else C_TYPE[WIDER[kind]]
    product_ = f"(({wide})A*({wide})B)>>{8 * SIZE[c_type]}"
    unsigned = "u" + c_type[1:]
    tail = f"+({unsigned})C" if addend else ""
    return Form(c_type, (c_type,) * 2 + more, f"({c_type})(({unsigned})({product_}){tail})")


def _product(addend: str = "") -> Row:
    def form(kind: str, flags: Flags) -> Form | None:
        return _multiply(kind, one_of(flags, _PARTS), addend)

    return Row(INTEGERS, form, (), _PARTS)


def _product_with_carry(takes: bool, needs: Collection[str], may: Collection[str]) -> Row:
    def form(kind: str, flags: Flags) -> Form | None:
        base = _multiply(kind, one_of(flags, _PARTS), "")
        if base is None:
            return None
        unsigned = "u" + base.dst[1:]
        marks = f"{'X' if takes else '0'},{'&X' if 'cc' in flags else '0'}"
        expr = f"addc{kind[1:]}(({unsigned})({base.expr}),({unsigned})C,{marks})"
        return Form(base.dst, (*base.src, base.dst), expr, carry=True)

    return Row(_CARRIED, form, needs, may)


_FMA = _float("fma_32(A,B,C)", "fma_64(A,B,C)")
fma = rows(_FMA, _packed_f32("fma_32(A,B,C)"), _half("fma_odd({0},{1},{2})"))
mul = rows(_float("A*B", "A*B"), _packed_f32("(A*B)"), _half("(f64){0}*(f64){1}"), _product())
mad = rows(
    _FMA,
    _product_with_carry(False, ("cc",), ("lo", "hi")),
    _saturated("SATI((((i64)A*(i64)B)>>32)+(i64)C)", "hi"),
    _product("C"),
)
madc = rows(_product_with_carry(True, (), ("lo", "hi", "cc")))
_UNSIGNED = tuple(kind for kind in INTEGERS if kind[0] == "u")
div = rows(
    _float("fast_div(A,B)", needs=("approx",)),
    _float("A/B", needs=("full",)),
    _float("A/B", "A/B"),
    Row(_UNSIGNED, _same("(B?(T)(A/B):(T)-1)")),
    # the quotient of the smallest value and -1 wraps; by zero it is all ones, as the GPU gives
    Row(INTEGERS, _same("(B==0?(T)-1:B==-1?(T)(0-(u64)A):(T)(A/B))")),
)
rem = rows(
    Row(_UNSIGNED, _same("(B==0?A:(T)(A%B))")), Row(INTEGERS, _same("(B==0?A:B==-1?0:(T)(A%B))"))
)

# --- functions ------------------------------------------------------------------------------------


def approximated(f32: str, *exact64: str) -> tuple[Row, ...]:
    """A function that is either approximate or rounded, of f32, and of f64 where it is rounded."""
    by_rounding = [_float(f32, *exact64, needs=(way,), may=("ftz", "sat")) for way in ROUNDING]
    return (_float(f32, needs=("approx",)), *by_rounding)


def reciprocal(name: str) -> Maker:
    """rcp and rsqrt: .approx.ftz.f64 gives only the upper 32 bits of the result."""
    single = {"rcp": "1.0f/A", "rsqrt": "1.0f/sqrtf(A)"}[name]
    double = {"rcp": "1.0/A", "rsqrt": "1.0/sqrt(A)"}[name]
    flushed = f"upper32(FTZD({double.replace('A', 'FTZD(A)')}))"
    of_f64 = [Row(("f64",), lambda *_: Form("f64", ("f64",), flushed), ("approx", "ftz"))]
    if name == "rsqrt":
        of_f64.append(Row(("f64",), lambda *_: Form("f64", ("f64",), double), ("approx",)))
    return rows(*of_f64, *approximated(single, *([double] if name == "rcp" else [])))


def approximate(name: str) -> Maker:
    """ex2, lg2, sin, cos, tanh."""

    def half(kind: str, flags: Flags) -> Form:
        base = kind.removesuffix("x2")

        def one(suffix: str) -> str:
            return f"{base}_r({name}_approx({base}_f({half_part(kind, 'A', suffix)})))"

        return Form(kind, (kind,), joined(kind, one))

    single = _float(f"{name}_approx(A)", needs=("approx",), may=("ftz", "sat"))
    halves = HALVES if name in ("ex2", "tanh") else ()
    return rows(single, Row(halves, half, ("approx",), ("ftz",)))


def min_max(name: str) -> Maker:
    sign = "<" if name == "min" else ">"

    def of_floats(kind: str, flags: Flags) -> Form | None:
        swap = "xorsign" in flags
        if swap != ("abs" in flags) or (kind == "f64" and (swap or "ftz" in flags)):
            return None
        function = f"{name}{'_nan' if 'NaN' in flags else ''}_{'f' if kind == 'f32' else 'd'}"
        a, b = ("FTZ(A)", "FTZ(B)") if "ftz" in flags else ("A", "B")
        expr = f"{function}({a},{b})"
        if swap:
            expr = f"xorsign_f({function}(fabsf({a}),fabsf({b})),A,B)"
        return Form(kind, (kind,) * 2, expr)

    def of_halves(kind: str, flags: Flags) -> Form | None:
        if "ftz" in flags and kind.startswith("bf16"):
            return None
        base, function = kind.removesuffix("x2"), f"{name}{'_nan' if 'NaN' in flags else ''}_f"

        def one(s: str) -> str:
            a, b = (half_value(base, half_part(kind, x, s), "ftz" in flags) for x in "AB")
            return f"{base}_r({function}({a},{b}))"

        return Form(kind, (kind,) * 2, joined(kind, one))

    return rows(
        Row(("s32",), lambda *_: Form("i32", ("i32",) * 2, f"RELUI(A{sign}B?A:B)"), ("relu",)),
        Row(INTEGERS, _same(f"(A{sign}B?A:B)")),
        Row(FLOATS, of_floats, (), ("NaN", "xorsign", "abs", "ftz")),
        Row(HALVES, of_halves, (), ("NaN", "ftz")),
    )


def neg_abs(name: str) -> Maker:
    def of_floats(kind: str, flags: Flags) -> Form:
        value = "FTZ(A)" if "ftz" in flags else "A"
        function = "-" if name == "neg" else "fabsf" if kind == "f32" else "fabs"
        return Form(kind, (kind,), f"-{value}" if name == "neg" else f"{function}({value})")

    def flushed(kind: str, flags: Flags) -> Form:
        function = "-" if name == "neg" else "fabsf"

        def one(s: str) -> str:
            return f"f16_r({function}({half_value('f16', half_part(kind, 'A', s), 'ftz')}))"

        return Form(kind, (kind,), joined(kind, one))

    def of_halves(kind: str, flags: Flags) -> Form:
        mask = "0x80008000u" if kind.endswith("x2") else "0x8000u"
        return Form(kind, (kind,), f"A^{mask}" if name == "neg" else f"A&~{mask}")

    return rows(
        Row(("f32",), of_floats, (), ("ftz",)),
        Row(("f64",), of_floats),
        Row(("f16", "f16x2"), flushed, ("ftz",)),
        Row(HALVES, of_halves),
        Row(INTEGERS, _same("(T)(0-(U)A)" if name == "neg" else "(A<0?(T)(0-(U)A):A)")),
    )


copysign = rows(
    Row(("f32",), lambda *_: Form("f32", ("f32",) * 2, "copysignf(B,A)")),
    Row(("f64",), lambda *_: Form("f64", ("f64",) * 2, "copysign(B,A)")),
)


def _tests(kind: str, magnitude: str, smallest: str, infinite: str) -> list[Row]:
    tests = {
        "finite": f"{magnitude}<{infinite}",
        "infinite": f"{magnitude}=={infinite}",
        "number": "A==A",
        "notanumber": "A!=A",
        "normal": f"({magnitude}>={smallest}&&{magnitude}<{infinite})",
        "subnormal": f"({magnitude}<{smallest}&&A!=0)",
    }
    forms = {name: Form("u32", (kind,), f"-(u32)({test})") for name, test in tests.items()}
    return [Row((kind,), lambda _, flags: forms[min(flags)], (name,)) for name in tests]


testp = rows(
    *_tests("f32", "fabsf(A)", "1.17549435e-38f", "__builtin_inff()"),
    *_tests("f64", "fabs(A)", "2.2250738585072014e-308", "__builtin_inf()"),
)
