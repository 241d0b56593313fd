"""Forms of comparison, selection, and operations on bits."""

from __future__ import annotations

from itertools import product

from coding_framework.cuda.emulator.forms import (
    BITS,
    C_TYPE,
    FLOATS,
    INTEGERS,
    SIZE,
    Flags,
    Form,
    Maker,
    Row,
    arity_of,
    fixed,
    half_part,
    half_value,
    joined,
    rows,
    take,
)

# --- comparison and selection ---------------------------------------------------------------------

COMPARE = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}


def comparison(name: str, kind: str, a: str = "A", b: str = "B") -> str | None:
    """C condition of a comparison operator on a type; None where the pair does not exist."""
    if kind in ("f32", "f64", "f16", "bf16"):
        if name in UNORDERED:
            return f"({a}!={a}||{b}!={b}||{a}{UNORDERED[name]}{b})"
        if name in ("num", "nan"):
            return f"({a}=={a}&&{b}=={b})" if name == "num" else f"({a}!={a}||{b}!={b})"
        if name == "ne":
            return f"({a}<{b}||{a}>{b})"
        return f"({a}{COMPARE[name]}{b})" if name in tuple(COMPARE)[:6] else None
    if kind in BITS:
        return f"({a}{COMPARE[name]}{b})" if name in ("eq", "ne") else None
    if kind not in INTEGERS or name not in COMPARE:
        return None
    if name in ("lo", "ls", "hi", "hs") and kind[0] != "u":
        return None
    return f"({a}{COMPARE[name]}{b})"


def _compare_values(kind: str, ftz: bool) -> tuple[str, str, str]:
    """C type of the operands, and the two operands as comparable values."""
    if kind in ("f16", "bf16"):
        return kind, half_value(kind, "A", ftz), half_value(kind, "B", ftz)
    if ftz:
        return C_TYPE[kind], "FTZ(A)", "FTZ(B)"
    return C_TYPE[kind], "A", "B"


def setp(modifiers: list[str]) -> Form | None:
    """setp without a second predicate operand; the assembler joins those."""
    kind = modifiers.pop()
    ftz = bool(take(modifiers, "ftz"))
    if len(modifiers) != 1 or kind not in C_TYPE or (ftz and kind not in ("f32", "f16")):
        return None
    c_type, a, b = _compare_values(kind, ftz)
    test = comparison(modifiers[0], kind, a, b)
    return Form("u32", (c_type, c_type), f"-(u32){test}") if test else None


def set(modifiers: list[str]) -> Form | None:
    if len(modifiers) < 3:
        return None
    kind, target = modifiers.pop(), modifiers.pop()
    ftz = bool(take(modifiers, "ftz"))
    if len(modifiers) != 1 or kind not in C_TYPE:
        return None
    if ftz and kind not in ("f32", "f16", "f16x2"):
        return None
    if kind in ("f16x2", "bf16x2"):
        return _set_packed(modifiers[0], kind, target, ftz)
    c_type, a, b = _compare_values(kind, ftz)
    test = comparison(modifiers[0], kind, a, b)
    true, dst = {
        "u32": ("0xffffffffu", "u32"), "s32": ("0xffffffffu", "u32"), "f32": ("1.0f", "f32"),
        "f16": ("0x3c00", "u16"), "bf16": ("0x3f80", "u16"), "u16": ("0xffff", "u16"),
        "s16": ("0xffff", "u16"),
    }.get(target, ("", ""))  # fmt: skip
    return Form(dst, (c_type, c_type), f"({test}?{true}:0)") if test and dst else None


def _set_packed(name: str, kind: str, target: str, ftz: bool) -> Form | None:
    base = kind.removesuffix("x2")
    if target not in (kind, "u32", "s32"):
        return None
    true = "0xffff" if target != kind else ("0x3c00" if base == "f16" else "0x3f80")

    def one(s: str) -> str:
        values = (half_value(base, half_part(kind, x, s), ftz) for x in "AB")
        test = comparison(name, base, *values)
        return f"({test}?{true}:0)"

    if comparison(name, base) is None:
        return None
    return Form("u32", (kind, kind), joined(kind, one))


_MOVED = (*INTEGERS, *BITS, *FLOATS)


def _moved(kind: str, expr: str, *more: str) -> Form:
    """An instruction that only moves bits: on the unsigned type of the same width."""
    c_type = f"u{8 * SIZE[C_TYPE[kind]]}"
    return Form(c_type, (c_type,) * arity_of(expr.replace("C", "")) + more, expr)


selp = rows(Row(_MOVED, lambda kind, _: _moved(kind, "(C?A:B)", "u32")))
mov = rows(Row(C_TYPE, lambda kind, _: _moved(kind, "A")))


def slct(modifiers: list[str]) -> Form | None:
    selector, kind = modifiers.pop(), modifiers.pop() if modifiers else ""
    ftz = take(modifiers, "ftz")
    if modifiers or selector not in ("s32", "f32") or kind not in _MOVED:
        return None
    return _moved(kind, f"({'FTZ(C)' if ftz else 'C'}>=0?A:B)", C_TYPE[selector])


# --- bits -----------------------------------------------------------------------------------------


def logic(expr: str) -> Maker:
    def form(kind: str, _: Flags) -> Form:
        c_type = C_TYPE[kind]
        return Form(c_type, (c_type,) * arity_of(expr), f"({c_type})({expr})")

    return rows(Row((*BITS, "pred"), form))


def shift(name: str) -> Maker:
    def form(kind: str, _: Flags) -> Form:
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

    return rows(Row(BITS if name == "shl" else (*INTEGERS, *BITS), form))


def shf(modifiers: list[str]) -> Form | None:
    if len(modifiers) != 3 or modifiers[2] != "b32" or modifiers[1] not in ("wrap", "clamp"):
        return None
    amount = "(C&31)" if modifiers[1] == "wrap" else "(C<32?C:32)"
    both = "((u64)B<<32|A)"
    expr = {"l": f"(u32)({both}<<{amount}>>32)", "r": f"(u32)({both}>>{amount})"}.get(modifiers[0])
    return Form("u32", ("u32",) * 3, expr) if expr else None


def bit_forms() -> dict[str, Maker]:
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
        for k in INTEGERS
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
        "bfe": fixed(bfe), "bfind": fixed(bfind), "prmt": fixed(prmt), "dp4a": fixed(dot),
        "dp2a": fixed(dot2), "sad": fixed(sad), "mul24": fixed(mul24), "mad24": fixed(mad24),
        "bfi": fixed({
            "b32": Form(u32, (u32,) * 4, "bfi_b32(A,B,C,E)"),
            "b64": Form(u64, (u64, u64, u32, u32), "bfi_b64(A,B,C,E)"),
        }),
        "vabsdiff4": fixed(
            {
                "u32.u32.u32": Form(u32, (u32,) * 3, "vabsdiff4(A,B)"),
                "u32.u32.u32.add": Form(u32, (u32,) * 3, "vabsdiff4_add(A,B,C)"),
            }
        ),
        "popc": fixed({
            "b32": Form(u32, (u32,), "(u32)__builtin_popcount(A)"),
            "b64": Form(u32, (u64,), "(u32)__builtin_popcountll(A)"),
        }),
        "clz": fixed({
            "b32": Form(u32, (u32,), "(A?(u32)__builtin_clz(A):32u)"),
            "b64": Form(u32, (u64,), "(A?(u32)__builtin_clzll(A):64u)"),
        }),
        "brev": fixed({
            "b32": Form(u32, (u32,), "brev_b32(A)"), "b64": Form(u64, (u64,), "brev_b64(A)"),
        }),
        "lop3": fixed({"b32": Form(u32, (u32,) * 4, "lop3_b32(A,B,C,E)")}),
        "fns": fixed({"b32": Form(u32, (u32, u32, "i32"), "fns_b32(A,B,C)")}),
        "szext": fixed({
            f"{m}.{k}": Form(u32, (u32, u32), f"szext_{k}(A,B,{int(m == 'wrap')})")
            for m, k in product(("wrap", "clamp"), ("u32", "s32"))
        }),
        "bmsk": fixed({
            f"{m}.b32": Form(u32, (u32, u32), f"bmsk_b32(A,B,{int(m == 'wrap')})")
            for m in ("wrap", "clamp")
        }),
    }  # fmt: skip
