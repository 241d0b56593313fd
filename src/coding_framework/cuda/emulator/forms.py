"""What a form is, and the vocabulary that the tables of forms share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

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
WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}
ROUNDING = {"rn": "", "rz": "RZ", "rm": "RM", "rp": "RP"}
INTEGERS = ("s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = ("f32", "f64")
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
BITS = ("b16", "b32", "b64")


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
Flags = frozenset[str]
"""The modifiers of an instruction but its type."""


@dataclass(frozen=True, slots=True)
class Row:
    """The forms of some types of an instruction, with the modifiers that these take."""

    kinds: Collection[str]
    form: Callable[[str, Flags], Form | None]
    """Given the type and all modifiers."""
    needs: Collection[str] = ()
    may: Collection[str] = ()


def rows(*table: Row) -> Maker:
    """An instruction whose last modifier is its type: the first row that takes the others."""

    def make(modifiers: list[str]) -> Form | None:
        *others, kind = modifiers
        flags = frozenset(others)
        if len(flags) != len(others):
            return None
        for row in table:
            if kind in row.kinds and flags >= {*row.needs} and flags <= {*row.needs, *row.may}:
                return row.form(kind, flags)
        return None

    return make


def one_of(flags: Flags, choices: Iterable[str]) -> str | None:
    """The one of the choices that is there; "": none is; None: several are."""
    found = flags.intersection(choices)
    return None if len(found) > 1 else "".join(found)


def arity_of(expr: str) -> int:
    """How many operands an expression over A, B and C has."""
    return 3 if "C" in expr else 2 if "B" in expr else 1


def take(modifiers: list[str], *choices: str) -> str:
    """Remove and return the first of `choices` that is there; "" where none is."""
    for choice in choices:
        if choice in modifiers:
            modifiers.remove(choice)
            return choice
    return ""


def half_part(kind: str, name: str, suffix: str) -> str:
    if not kind.endswith("x2"):
        return name
    return f"({name}&65535)" if suffix == "lo" else f"({name}>>16)"


def half_value(base: str, bits: str, ftz: str | bool) -> str:
    """A half as a C float, subnormals as zeros where asked for."""
    value = f"{base}_f({bits})"
    return f"ftz_half({value})" if ftz else value


def joined(kind: str, one: Callable[[str], str]) -> str:
    if not kind.endswith("x2"):
        return one("lo")
    return f"((u32){one('lo')}|(u32){one('hi')}<<16)"


def fixed(forms: dict[str, Form]) -> Maker:
    """Instructions of which each spelling is listed."""
    return lambda modifiers: forms.get(".".join(modifiers))


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
