"""The one table of what PTX instructions compute, lane by lane.

`form_of(opcode)` gives the `Form` of an arithmetic instruction: C types and a C expression over A,
B, C, E, and X (the carry). codegen.py makes one interpreter handler per distinct form; assembler.py
looks the form up. Modifiers are matched strictly: an opcode with one that is not known has no form
and ends as `unsupported`, never as a similar instruction.

Source: NVIDIA, Parallel Thread Execution ISA 9.0, chapter 9.7. Approximate instructions are
computed at least as exactly as the manual's stated error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product

C_TYPE = {
    "pred": "u32", "b8": "u8", "u8": "u8", "s8": "i8", "b16": "u16", "u16": "u16", "s16": "i16",
    "b32": "u32", "u32": "u32", "s32": "i32", "f32": "f32", "b64": "u64", "u64": "u64",
    "s64": "i64", "f64": "f64", "f16": "f16", "bf16": "bf16", "f16x2": "f16x2",
    "bf16x2": "bf16x2", "tf32": "u32", "f32x2": "f32x2",
}  # fmt: skip
SIZE = {
    "u8": 1, "i8": 1, "u16": 2, "i16": 2, "f16": 2, "bf16": 2, "u32": 4, "i32": 4, "f32": 4,
    "f16x2": 4, "bf16x2": 4, "u64": 8, "i64": 8, "f64": 8, "f32x2": 8,
}  # fmt: skip
_WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}
_ROUNDING = {"rn": "", "rz": "RZ", "rm": "RM", "rp": "RP"}
_INTS = ("s16", "u16", "s32", "u32", "s64", "u64")
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_BITS = ("b16", "b32", "b64")


@dataclass(frozen=True, slots=True)
class Form:
    """One handler: `dst` = `expr` of `src` for each active lane.

    rounding: "", or the direction (RZ, RM, RP) that the expression is evaluated in.
    carry: the expression assigns the lane's carry flag X (u32) itself.
    """

    dst: str
    src: tuple[str, ...]
    expr: str
    rounding: str = ""
    carry: bool = False


Maker = Callable[[list[str]], Form | None]


@cache
def form_of(opcode: str) -> Form | None:
    """The form of `opcode`, or None where it is not a plain arithmetic instruction we know."""
    head, *modifiers = opcode.split(".")
    maker = _MAKERS.get(head)
    return maker(modifiers) if maker and modifiers else None


def _take(modifiers: list[str], *choices: str) -> str:
    """Remove and return the first of `choices` that is there; "" where none is."""
    for choice in choices:
        if choice in modifiers:
            modifiers.remove(choice)
            return choice
    return ""


# --- floating point -------------------------------------------------------------------------------


def _float(
    modifiers: list[str], kind: str, arity: int, expr: str, *, rounds: bool = True
) -> Form | None:
    """An f32 or f64 operation with .rnd, .ftz and .sat; `expr` over A, B, C."""
    rounding = _take(modifiers, *_ROUNDING) if rounds else ""
    ftz, sat = _take(modifiers, "ftz"), _take(modifiers, "sat")
    if modifiers or (kind == "f64" and (ftz or sat)):
        return None
    if ftz:
        for name in "ABC"[:arity]:
            expr = expr.replace(name, f"FTZ({name})")
        expr = f"FTZ({expr})"
    if sat:
        expr = f"SATF({expr})"
    return Form(kind, (kind,) * arity, expr, _ROUNDING.get(rounding, ""))


def _half(modifiers: list[str], kind: str, name: str, arity: int) -> Form | None:
    """An f16 or bf16 operation, scalar or packed: computed in wider precision, rounded once."""
    _take(modifiers, "rn")
    flags = [_take(modifiers, m) for m in ("ftz", "noftz", "sat", "relu", "oob")]
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
        values = [f"{base}_f({_part(kind, x, suffix)})" for x in "ABC"[:arity]]
        if ftz:
            values = [f"ftz_half({v})" for v in values]
        value = inner.format(*values)
        if sat:
            value = f"SATD({value})"
        if relu:
            value = f"RELUD({value})"
        out = f"{base}_r({value})"
        return f"ftz_{base}({out})" if ftz else out

    return Form(kind, (kind,) * arity, _joined(kind, one))


def _part(kind: str, name: str, suffix: str) -> str:
    if not kind.endswith("x2"):
        return name
    return f"({name}&65535)" if suffix == "lo" else f"({name}>>16)"


def _joined(kind: str, one: Callable[[str], str]) -> str:
    if not kind.endswith("x2"):
        return one("lo")
    return f"((u32){one('lo')}|(u32){one('hi')}<<16)"


def _packed_f32(modifiers: list[str], expr: str, arity: int) -> Form | None:
    """f32x2 of sm_100: two floats in 64 bits, rounded to nearest."""
    rounding = _take(modifiers, *_ROUNDING)
    if modifiers:
        return None

    def one(suffix: str) -> str:
        text = expr
        for name in "ABC"[:arity]:
            text = text.replace(name, f"{suffix}f({name})")
        return text

    joined = f"pairf({one('lo')},{one('hi')})"
    return Form("f32x2", ("f32x2",) * arity, joined, _ROUNDING.get(rounding, ""))


def _arithmetic(name: str, sign: str) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if kind in ("f32", "f64"):
            return _float(modifiers, kind, 2, f"A{sign}B")
        if kind == "f32x2":
            return _packed_f32(modifiers, f"(A{sign}B)", 2)
        if kind in _HALVES:
            return _half(modifiers, kind, name, 2)
        if kind not in (*_INTS, "s64", "u64"):
            return None
        carry = _take(modifiers, "cc")
        if carry:
            return None if modifiers else _carry_form(name, kind, False, True)
        if _take(modifiers, "sat"):
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


def _carry(name: str) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        gives = bool(_take(modifiers, "cc"))
        kind = modifiers.pop() if modifiers else ""
        return None if modifiers else _carry_form(name, kind, True, gives)

    return make


def _mul(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if kind in ("f32", "f64"):
        return _float(modifiers, kind, 2, "A*B")
    if kind == "f32x2":
        return _packed_f32(modifiers, "(A*B)", 2)
    if kind in _HALVES:
        return _half(modifiers, kind, "mul", 2)
    part = _take(modifiers, "lo", "hi", "wide")
    if modifiers or kind not in _INTS:
        return None
    return _multiply(kind, part, "")


def _multiply(kind: str, part: str, addend: str) -> Form | None:
    c_type = C_TYPE[kind]
    more = (
        (C_TYPE[_WIDER[kind]],)
        if part == "wide" and kind in _WIDER and addend
        else ((c_type,) if addend else ())
    )
    if part == "lo":
        # u16 operands promote to int, whose product may overflow: go through u32
        wide = "u32" if SIZE[c_type] < 4 else "u" + c_type[1:]
        tail = f"+({wide})C" if addend else ""
        return Form(c_type, (c_type,) * 2 + more, f"({c_type})(({wide})A*({wide})B{tail})")
    if part == "wide" and kind in _WIDER:
        wide = C_TYPE[_WIDER[kind]]
        unsigned = "u" + wide[1:]
        tail = f"+({unsigned})C" if addend else ""
        expr = f"({wide})(({unsigned})({wide})A*({unsigned})({wide})B{tail})"
        return Form(wide, (c_type,) * 2 + more, expr)
    if part == "hi":
        if SIZE[c_type] == 8:
            wide = "i128" if c_type[0] == "i" else "u128"
        else:
            wide = C_TYPE[_WIDER[kind]]
        product_ = f"(({wide})A*({wide})B)>>{8 * SIZE[c_type]}"
        unsigned = "u" + c_type[1:]
        tail = f"+({unsigned})C" if addend else ""
        return Form(c_type, (c_type,) * 2 + more, f"({c_type})(({unsigned})({product_}){tail})")
    return None


def _mad(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if kind in ("f32", "f64"):
        return _fma([*modifiers, kind])
    if kind not in _INTS:
        return None
    part = _take(modifiers, "lo", "hi", "wide")
    if _take(modifiers, "cc"):
        return None if modifiers else _mad_carry(kind, part, False, True)
    if _take(modifiers, "sat"):
        expr = "SATI((((i64)A*(i64)B)>>32)+(i64)C)"
        same = kind == "s32" and part == "hi" and not modifiers
        return Form("i32", ("i32",) * 3, expr) if same else None
    return None if modifiers else _multiply(kind, part, "C")


def _madc(modifiers: list[str]) -> Form | None:
    gives = bool(_take(modifiers, "cc"))
    part = _take(modifiers, "lo", "hi")
    kind = modifiers.pop() if modifiers else ""
    return None if modifiers else _mad_carry(kind, part, True, gives)


def _mad_carry(kind: str, part: str, takes: bool, gives: bool) -> Form | None:
    base = _multiply(kind, part, "") if part in ("lo", "hi") and kind in _INTS[2:] else None
    if base is None:
        return None
    unsigned = "u" + base.dst[1:]
    function = f"addc{kind[1:]}"
    flags = f"{'X' if takes else '0'},{'&X' if gives else '0'}"
    expr = f"{function}(({unsigned})({base.expr}),({unsigned})C,{flags})"
    return Form(base.dst, (*base.src, base.dst), expr, carry=True)


def _fma(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if kind in ("f32", "f64"):
        return _float(modifiers, kind, 3, f"FMA{kind[1:]}(A,B,C)".replace("FMA", "fma_"))
    if kind == "f32x2":
        return _packed_f32(modifiers, "fma_32(A,B,C)", 3)
    return _half(modifiers, kind, "fma", 3) if kind in _HALVES else None


def _div(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if kind in ("f32", "f64"):
        if kind == "f32":
            _take(modifiers, "approx", "full")
        return _float(modifiers, kind, 2, "A/B")
    if modifiers or kind not in _INTS:
        return None
    c_type = C_TYPE[kind]
    if c_type[0] == "u":
        return Form(c_type, (c_type,) * 2, f"(B?({c_type})(A/B):({c_type})-1)")
    # the quotient of the smallest value and -1 wraps; by zero it is all ones, as the GPU gives
    return Form(
        c_type, (c_type,) * 2, f"(B==0?({c_type})-1:B==-1?({c_type})(0-(u64)A):({c_type})(A/B))"
    )


def _rem(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if modifiers or kind not in _INTS:
        return None
    c_type = C_TYPE[kind]
    guard = "B==0?A:B==-1?0:" if c_type[0] == "i" else "B==0?A:"
    return Form(c_type, (c_type,) * 2, f"({guard}({c_type})(A%B))")


def _unary_float(expr32: str, expr64: str = "", *, approximate: bool = False) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if kind not in ("f32", "f64") or (kind == "f64" and not expr64):
            return None
        approx = _take(modifiers, "approx")
        if approximate and not approx and not any(r in modifiers for r in _ROUNDING):
            return None
        if kind == "f64" and approx:
            return None
        return _float(modifiers, kind, 1, expr32 if kind == "f32" else expr64)

    return make


def _reciprocal64(name: str) -> Maker:
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
        return _unary_float(single, double if name == "rcp" else "", approximate=True)(modifiers)

    return make


def _approximate(name: str) -> Maker:
    """ex2, lg2, sin, cos, tanh."""

    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if kind == "f32":
            if not _take(modifiers, "approx"):
                return None
            return _float(modifiers, "f32", 1, f"{name}_approx(A)", rounds=False)
        if kind not in _HALVES or name not in ("ex2", "tanh") or not _take(modifiers, "approx"):
            return None
        _take(modifiers, "ftz")
        if modifiers:
            return None
        base = kind.removesuffix("x2")
        expr = _joined(kind, lambda s: f"{base}_r({name}_approx({base}_f({_part(kind, 'A', s)})))")
        return Form(kind, (kind,), expr)

    return make


def _min_max(name: str) -> Maker:
    sign = "<" if name == "min" else ">"

    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if kind in _INTS:
            if _take(modifiers, "relu"):
                same = kind == "s32" and not modifiers
                return Form("i32", ("i32",) * 2, f"RELUI(A{sign}B?A:B)") if same else None
            c_type = C_TYPE[kind]
            return None if modifiers else Form(c_type, (c_type,) * 2, f"(A{sign}B?A:B)")
        nan, swap = _take(modifiers, "NaN"), _take(modifiers, "xorsign")
        absolute, ftz = _take(modifiers, "abs"), _take(modifiers, "ftz")
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
        if kind not in _HALVES or swap:
            return None
        base = kind.removesuffix("x2")
        function = f"{name}{'_nan' if nan else ''}_f"

        def one(s: str) -> str:
            a, b = (f"{base}_f({_part(kind, x, s)})" for x in "AB")
            return f"{base}_r({function}({a},{b}))"

        return Form(kind, (kind,) * 2, _joined(kind, one))

    return make


def _neg_abs(name: str) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        ftz = _take(modifiers, "ftz")
        if modifiers:
            return None
        if kind in ("f32", "f64"):
            function = "fabsf" if kind == "f32" else "fabs"
            value = "FTZ(A)" if ftz else "A"
            return Form(kind, (kind,), f"-{value}" if name == "neg" else f"{function}({value})")
        if kind in _HALVES:
            mask = "0x80008000u" if kind.endswith("x2") else "0x8000u"
            return Form(kind, (kind,), f"A^{mask}" if name == "neg" else f"A&~{mask}")
        if kind not in _INTS:
            return None
        c_type = C_TYPE[kind]
        unsigned = "u" + c_type[1:]
        negated = f"({c_type})(0-({unsigned})A)"
        return Form(c_type, (c_type,), negated if name == "neg" else f"(A<0?{negated}:A)")

    return make


def _copysign(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if modifiers or kind not in ("f32", "f64"):
        return None
    return Form(kind, (kind,) * 2, f"copysign{'f' if kind == 'f32' else ''}(B,A)")


def _testp(modifiers: list[str]) -> Form | None:
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


# --- comparison and selection ---------------------------------------------------------------------

_COMPARE = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}


def comparison(name: str, kind: str, a: str = "A", b: str = "B") -> str | None:
    """C condition of a comparison operator on a type; None where the pair does not exist."""
    if kind in ("f32", "f64", "f16", "bf16"):
        if name in _UNORDERED:
            return f"({a}!={a}||{b}!={b}||{a}{_UNORDERED[name]}{b})"
        if name in ("num", "nan"):
            return f"({a}=={a}&&{b}=={b})" if name == "num" else f"({a}!={a}||{b}!={b})"
        if name == "ne":
            return f"({a}<{b}||{a}>{b})"
        return f"({a}{_COMPARE[name]}{b})" if name in tuple(_COMPARE)[:6] else None
    if kind in _BITS:
        return f"({a}{_COMPARE[name]}{b})" if name in ("eq", "ne") else None
    if kind not in _INTS or name not in _COMPARE:
        return None
    if name in ("lo", "ls", "hi", "hs") and kind[0] != "u":
        return None
    return f"({a}{_COMPARE[name]}{b})"


def _compare_values(kind: str, ftz: bool) -> tuple[str, str, str]:
    """C type of the operands, and the two operands as comparable values."""
    if kind in ("f16", "bf16"):
        return kind, f"{kind}_f(A)", f"{kind}_f(B)"
    if ftz:
        return C_TYPE[kind], "FTZ(A)", "FTZ(B)"
    return C_TYPE[kind], "A", "B"


def _setp(modifiers: list[str]) -> Form | None:
    """setp without a second predicate operand; the assembler joins those."""
    kind = modifiers.pop()
    ftz = bool(_take(modifiers, "ftz"))
    if len(modifiers) != 1 or kind not in C_TYPE or (ftz and kind not in ("f32", "f16")):
        return None
    c_type, a, b = _compare_values(kind, ftz and kind == "f32")
    test = comparison(modifiers[0], kind, a, b)
    return Form("u32", (c_type, c_type), f"-(u32){test}") if test else None


def _set(modifiers: list[str]) -> Form | None:
    if len(modifiers) < 3:
        return None
    kind, target = modifiers.pop(), modifiers.pop()
    ftz = bool(_take(modifiers, "ftz"))
    if len(modifiers) != 1 or kind not in C_TYPE:
        return None
    if kind in ("f16x2", "bf16x2"):
        return _set_packed(modifiers[0], kind, target)
    c_type, a, b = _compare_values(kind, ftz and kind == "f32")
    test = comparison(modifiers[0], kind, a, b)
    true, dst = {
        "u32": ("0xffffffffu", "u32"), "s32": ("0xffffffffu", "u32"), "f32": ("1.0f", "f32"),
        "f16": ("0x3c00", "u16"), "bf16": ("0x3f80", "u16"), "u16": ("0xffff", "u16"),
        "s16": ("0xffff", "u16"),
    }.get(target, ("", ""))  # fmt: skip
    return Form(dst, (c_type, c_type), f"({test}?{true}:0)") if test and dst else None


def _set_packed(name: str, kind: str, target: str) -> Form | None:
    base = kind.removesuffix("x2")
    if target not in (kind, "u32", "s32"):
        return None
    true = "0xffff" if target != kind else ("0x3c00" if base == "f16" else "0x3f80")

    def one(s: str) -> str:
        test = comparison(name, base, *(f"{base}_f({_part(kind, x, s)})" for x in "AB"))
        return f"({test}?{true}:0)"

    if comparison(name, base) is None:
        return None
    return Form("u32", (kind, kind), _joined(kind, one))


def _selp(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if modifiers or kind not in (*_INTS, *_BITS, "f32", "f64"):
        return None
    c_type = _storage(kind)
    return Form(c_type, (c_type, c_type, "u32"), "(C?A:B)")


def _slct(modifiers: list[str]) -> Form | None:
    selector, kind = modifiers.pop(), modifiers.pop() if modifiers else ""
    ftz = _take(modifiers, "ftz")
    if modifiers or selector not in ("s32", "f32") or kind not in (*_INTS, *_BITS, "f32", "f64"):
        return None
    c_type = _storage(kind)
    test = "FTZ(C)>=0" if ftz else "C>=0"
    return Form(c_type, (c_type, c_type, C_TYPE[selector]), f"({test}?A:B)")


def _storage(kind: str) -> str:
    """Unsigned type of the same width: for instructions that only move bits."""
    return f"u{8 * SIZE[C_TYPE[kind]]}"


def _mov(modifiers: list[str]) -> Form | None:
    kind = modifiers.pop()
    if modifiers or kind not in C_TYPE:
        return None
    c_type = _storage(kind)
    return Form(c_type, (c_type,), "A")


# --- bits -----------------------------------------------------------------------------------------


def _logic(expr: str) -> Maker:
    arity = 1 if "B" not in expr else 2

    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if modifiers or kind not in (*_BITS, "pred"):
            return None
        c_type = C_TYPE[kind]
        return Form(c_type, (c_type,) * arity, f"({c_type})({expr})")

    return make


def _shift(name: str) -> Maker:
    def make(modifiers: list[str]) -> Form | None:
        kind = modifiers.pop()
        if modifiers or kind not in (_BITS if name == "shl" else (*_INTS, *_BITS)):
            return None
        c_type = C_TYPE[kind]
        bits = 8 * SIZE[c_type]
        wide = "u32" if bits < 32 else "u" + c_type[1:]
        if name == "shl":
            expr = f"(B<{bits}?({c_type})(({wide})A<<(B&{bits - 1})):0)"
        elif c_type[0] == "u":
            expr = f"(B<{bits}?({c_type})(A>>(B&{bits - 1})):0)"
        else:
            expr = f"({c_type})(A>>(B<{bits}?B:{bits - 1}))"
        return Form(c_type, (c_type, "u32"), expr)

    return make


def _shf(modifiers: list[str]) -> Form | None:
    if len(modifiers) != 3 or modifiers[2] != "b32" or modifiers[1] not in ("wrap", "clamp"):
        return None
    amount = "(C&31)" if modifiers[1] == "wrap" else "(C<32?C:32)"
    both = "((u64)B<<32|A)"
    expr = {"l": f"(u32)({both}<<{amount}>>32)", "r": f"(u32)({both}>>{amount})"}.get(modifiers[0])
    return Form("u32", ("u32",) * 3, expr) if expr else None


def _fixed(forms: dict[str, Form]) -> Maker:
    """Instructions of which each spelling is listed."""
    return lambda modifiers: forms.get(".".join(modifiers))


def _bit_forms() -> dict[str, Maker]:
    u32, u64 = "u32", "u64"
    bfe = {
        k: Form(C_TYPE[k], (C_TYPE[k], u32, u32), f"bfe_{k}(A,B,C)")
        for k in ("u32", "s32", "u64", "s64")
    }
    bfind = {
        f"{s}{k}": Form(u32, (C_TYPE[k],), f"bfind_{k}(A,{int(bool(s))})")
        for s, k in product(("", "shiftamt."), ("u32", "s32", "u64", "s64"))
    }
    prmt = {
        f"{'b32' if not m else 'b32.' + m}": Form(u32, (u32,) * 3, f"prmt_{m or 'default'}(A,B,C)")
        for m in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    }
    dot = {
        f"{a}.{b}": Form(
            "i32" if "s" in a + b else u32, (u32, u32, u32), f"dp4a_{a[0]}{b[0]}(A,B,C)"
        )
        for a, b in product(("u32", "s32"), repeat=2)
    }
    dot2 = {
        f"{m}.{a}.{b}": Form(u32, (u32, u32, u32), f"dp2a_{a[0]}{b[0]}(A,B,C,{int(m == 'hi')})")
        for m, a, b in product(("lo", "hi"), ("u32", "s32"), ("u32", "s32"))
    }
    sad = {
        k: Form(C_TYPE[k], (C_TYPE[k], C_TYPE[k], "u" + C_TYPE[k][1:]),
                f"({C_TYPE[k]})((u{C_TYPE[k][1:]})C+(A<B?(u64)B-(u64)A:(u64)A-(u64)B))")
        for k in _INTS
    }  # fmt: skip
    low24 = {"u32": "(A&0xffffff)", "s32": "((i32)(A<<8)>>8)"}
    mul24 = {}
    for k, part in product(("u32", "s32"), ("lo", "hi")):
        wide = "u64" if k == "u32" else "i64"
        value = f"({wide}){low24[k]}*({wide}){low24[k].replace('A', 'B')}"
        mul24[f"{part}.{k}"] = Form(
            u32, (u32, u32), f"(u32)(({value})>>{16 if part == 'hi' else 0})"
        )
    mad24 = {
        f"lo.{k}": Form(u32, (u32,) * 3, f"({mul24[f'lo.{k}'].expr})+C") for k in ("u32", "s32")
    }
    return {
        "bfe": _fixed(bfe), "bfind": _fixed(bfind), "prmt": _fixed(prmt), "dp4a": _fixed(dot),
        "dp2a": _fixed(dot2), "sad": _fixed(sad), "mul24": _fixed(mul24), "mad24": _fixed(mad24),
        "bfi": _fixed({
            "b32": Form(u32, (u32,) * 4, "bfi_b32(A,B,C,E)"),
            "b64": Form(u64, (u64, u64, u32, u32), "bfi_b64(A,B,C,E)"),
        }),
        "popc": _fixed({
            "b32": Form(u32, (u32,), "(u32)__builtin_popcount(A)"),
            "b64": Form(u32, (u64,), "(u32)__builtin_popcountll(A)"),
        }),
        "clz": _fixed({
            "b32": Form(u32, (u32,), "(A?(u32)__builtin_clz(A):32u)"),
            "b64": Form(u32, (u64,), "(A?(u32)__builtin_clzll(A):64u)"),
        }),
        "brev": _fixed({
            "b32": Form(u32, (u32,), "brev_b32(A)"), "b64": Form(u64, (u64,), "brev_b64(A)"),
        }),
        "lop3": _fixed({"b32": Form(u32, (u32,) * 4, "lop3_b32(A,B,C,E)")}),
        "fns": _fixed({"b32": Form(u32, (u32, u32, "i32"), "fns_b32(A,B,C)")}),
        "szext": _fixed({
            f"{m}.{k}": Form(u32, (u32, u32), f"szext_{k}(A,B,{int(m == 'wrap')})")
            for m, k in product(("wrap", "clamp"), ("u32", "s32"))
        }),
        "bmsk": _fixed({
            f"{m}.b32": Form(u32, (u32, u32), f"bmsk_b32(A,B,{int(m == 'wrap')})")
            for m in ("wrap", "clamp")
        }),
    }  # fmt: skip


# --- forms the assembler needs for itself ---------------------------------------------------------

INTERNAL = {
    "pack.b64": Form("u64", ("u32", "u32"), "(u64)A|(u64)B<<32"),
    "low.b64": Form("u32", ("u64",), "(u32)A"),
    "high.b64": Form("u32", ("u64",), "(u32)(A>>32)"),
    "pack.b32": Form("u32", ("u32", "u32"), "(A&65535)|B<<16"),
    "low.b32": Form("u32", ("u32",), "A&65535"),
    "high.b32": Form("u32", ("u32",), "A>>16"),
    "pack.b16": Form("u32", ("u32", "u32"), "(A&255)|(B&255)<<8"),
    "low.b16": Form("u32", ("u32",), "A&255"),
    "high.b16": Form("u32", ("u32",), "(A>>8)&255"),
    "saturate.u32": Form("u32", ("u64",), "(A>0xffffffffull?0xffffffffu:(u32)A)"),
    "extend.u64": Form("u64", ("u32",), "(u64)A"),
    "extend.s64": Form("i64", ("i32",), "(i64)A"),
    "low16.u32": Form("u32", ("u32",), "A&65535"),
    "isspacep": Form("u32", ("u64", "u64"), "-(u32)((A>>40)==(B>>40))"),
    "add.base": Form("u64", ("u64", "u64"), "A+B"),
}


def _makers() -> dict[str, Maker]:
    from coding_framework.cuda.emulator.conversions import convert

    return {
        "add": _arithmetic("add", "+"), "sub": _arithmetic("sub", "-"),
        "addc": _carry("add"), "subc": _carry("sub"), "mul": _mul, "mad": _mad, "madc": _madc,
        "fma": _fma, "div": _div, "rem": _rem, "min": _min_max("min"), "max": _min_max("max"),
        "neg": _neg_abs("neg"), "abs": _neg_abs("abs"), "copysign": _copysign, "testp": _testp,
        "sqrt": _unary_float("sqrtf(A)", "sqrt(A)", approximate=True),
        "rcp": _reciprocal64("rcp"), "rsqrt": _reciprocal64("rsqrt"),
        "ex2": _approximate("ex2"), "lg2": _approximate("lg2"), "sin": _approximate("sin"),
        "cos": _approximate("cos"), "tanh": _approximate("tanh"),
        "setp": _setp, "set": _set, "selp": _selp, "slct": _slct, "mov": _mov, "cvt": convert,
        "and": _logic("A&B"), "or": _logic("A|B"), "xor": _logic("A^B"), "not": _logic("~A"),
        "cnot": _fixed({k: Form(C_TYPE[k], (C_TYPE[k],), "(A==0)") for k in _BITS}),
        "shl": _shift("shl"), "shr": _shift("shr"), "shf": _shf, **_bit_forms(),
    }  # fmt: skip


_MAKERS: dict[str, Maker] = {}


def _spellings() -> Iterable[str]:
    """Spellings that between them reach every form; many share one."""
    from coding_framework.cuda.emulator.conversions import conversion_spellings

    rounding = ("", ".rn", ".rz", ".rm", ".rp")
    flags = ("", ".ftz", ".sat", ".ftz.sat")
    kinds = (*_INTS, *_BITS, "f32", "f64", *_HALVES, "f32x2", "pred")
    for head, k in product(("add", "sub", "mul", "fma"), kinds):
        for r, f in product(rounding, (*flags, ".relu", ".cc")):
            yield f"{head}{r}{f}.{k}"
    for head, k in product(("div", "sqrt", "rcp", "rsqrt"), kinds):
        for r, f in product((*rounding, ".approx", ".full"), flags):
            yield f"{head}{r}{f}.{k}"
    for head, k, f in product(("ex2", "lg2", "sin", "cos", "tanh"), kinds, flags):
        yield f"{head}.approx{f}.{k}"
    for head, k, p, c in product(
        ("mul", "mad", "madc"), _INTS, ("lo", "hi", "wide"), ("", ".cc", ".sat")
    ):
        yield f"{head}.{p}{c}.{k}"
    for head, k, c in product(("addc", "subc"), _INTS, ("", ".cc")):
        yield f"{head}{c}.{k}"
    for head, k in product(("rem", "neg", "abs", "selp", "mov", "and", "or", "xor", "not", "cnot",
                            "shl", "shr", "copysign", "bfe", "bfi", "bfind", "bfind.shiftamt",
                            "popc", "clz", "brev", "lop3", "fns", "sad", "mul24.lo", "mul24.hi",
                            "mad24.lo", "neg.ftz", "abs.ftz", "szext.wrap", "szext.clamp",
                            "bmsk.wrap", "bmsk.clamp"), kinds):  # fmt: skip
        yield f"{head}.{k}"
    for head, k, f in product(("min", "max"), kinds, ("", ".NaN", ".ftz", ".ftz.NaN", ".relu",
                              ".xorsign.abs", ".NaN.xorsign.abs", ".ftz.xorsign.abs")):  # fmt: skip
        yield f"{head}{f}.{k}"
    for k, t in product(
        ("f32", "f64"), ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    ):
        yield f"testp.{t}.{k}"
    for name, k, f in product((*_COMPARE, *_UNORDERED, "num", "nan"), kinds, ("", ".ftz")):
        yield f"setp.{name}{f}.{k}"
        for target in ("u32", "f32", "f16", "bf16", "u16", "f16x2", "bf16x2"):
            yield f"set.{name}{f}.{target}.{k}"
    for k, s, f in product(kinds, ("s32", "f32"), ("", ".ftz")):
        yield f"slct{f}.{k}.{s}"
    for d, m in product("lr", ("wrap", "clamp")):
        yield f"shf.{d}.{m}.b32"
    for m in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield f"prmt.b32{m}"
    for a, b in product(("u32", "s32"), repeat=2):
        yield from (f"dp4a.{a}.{b}", f"dp2a.lo.{a}.{b}", f"dp2a.hi.{a}.{b}")
    yield from conversion_spellings()


@cache
def all_forms() -> tuple[Form, ...]:
    """Every distinct form, in a fixed order: the position is the handler's number."""
    forms = dict.fromkeys(INTERNAL.values())
    for spelling in _spellings():
        form = form_of(spelling)
        if form is not None:
            forms[form] = None
    return tuple(forms)


@cache
def form_numbers() -> dict[Form, int]:
    """Form to its position in `all_forms`."""
    return {form: number for number, form in enumerate(all_forms())}


_MAKERS.update(_makers())
