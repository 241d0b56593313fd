"""What PTX instructions compute, lane by lane, from the table in instructions.toml.

`form_of(opcode)` gives the `Form` of an arithmetic instruction: C types and a C expression over A,
B, C, E, and X (the carry). codegen.py makes one interpreter handler per distinct form; assembler.py
looks the form up. Modifiers are matched strictly: an opcode with one that is not known has no form
and ends as `unsupported`, never as a similar instruction.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import pairwise, product

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
_HALVES = ("f16", "bf16")
_DIRECTIONS = {"rn": "", "rz": "RZ", "rm": "RM", "rp": "RP"}
_WAYS = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_SET = {"u32": ("u32", "0xffffffffu"), "s32": ("u32", "0xffffffffu"), "f32": ("f32", "1.0f"),
        "f16": ("u16", "0x3c00"), "bf16": ("u16", "0x3f80"), "u16": ("u16", "0xffff"),
        "s16": ("u16", "0xffff")}  # fmt: skip
"""Of a `set`, by the type of its result: the C type, and what is true."""


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


@dataclass(frozen=True, slots=True)
class _Row:
    """The forms of one type of an instruction, by the modifiers that may be left out."""

    head: str
    spelling: tuple[str, ...]
    """Modifiers and types in order."""
    kind: str
    """The last type, which says what the operands are."""
    needs: frozenset[str]
    """All else that has to be there."""
    may: frozenset[str]
    dst: str
    src: tuple[str, ...]
    expr: str

    def choices(self) -> Iterator[frozenset[str]]:
        """Each allowed set of modifiers that may be left out."""
        groups = [sorted(self.may & _DIRECTIONS.keys())]
        groups += [[one] for one in sorted(self.may - _DIRECTIONS.keys())]
        for chosen in product(*(["", *group] for group in groups)):
            yield frozenset(chosen) - {""}

    def form(self, flags: frozenset[str]) -> Form | None:
        """With these modifiers, the needed ones among them; None where they say two directions."""
        directions = flags & _DIRECTIONS.keys()
        if len(directions) > 1:
            return None
        way = "".join(_WAYS[way] for way in flags & _WAYS.keys())
        text = self.expr.replace("{z}", "z" if "rz" in flags else "r").replace("{way}", way)
        typed = _typed(text, self.dst, self.src, flags, converts=self.head == "cvt")
        exact = directions and self.dst in ("f32", "f64", "f32x2")
        rounding = _DIRECTIONS[min(directions)] if exact else ""
        return Form(self.dst, self.src, typed, rounding, re.search(r"\bX\b", text) is not None)


def _typed(
    expr: str, dst: str, src: Sequence[str], flags: frozenset[str], *, converts: bool
) -> str:
    """The expression over the values of its operands, made a value of its result. converts: of
    halves nothing is flushed."""
    types = dict(zip("ABC", src, strict=False))
    halves_too = "ftz" in flags and not converts

    def operand(name: str, part: str) -> str:
        kind = types.get(name, "")
        if kind == "f32x2":
            return f"{part}f({name})"
        base = kind.removesuffix("x2")
        if base in _HALVES:
            value = (
                f"{base}_f({ {'lo': f'({name}&65535)', 'hi': f'({name}>>16)'}.get(part, name) })"
            )
            return f"ftz_half({value})" if halves_too and base == "f16" else value
        return f"FTZ({name})" if kind == "f32" and "ftz" in flags else name

    def lane(part: str) -> str:
        text = re.sub(r"\b[ABC]\b", lambda m: operand(m[0], part), expr)
        base = dst.removesuffix("x2")
        if base not in ("f32", "f64", *_HALVES):
            return text
        single = "F" if base == "f32" else "D"
        for flag, around in (("sat", f"SAT{single}"), ("relu", f"RELU{single}")):
            text = f"{around}({text})" if flag in flags else text
        if base in _HALVES:
            text = f"{base}_{'z' if 'rz' in flags else 'r'}({text})"
            return f"ftz_f16({text})" if halves_too and base == "f16" else text
        return f"FTZ({text})" if base == "f32" and "ftz" in flags else text

    if dst == "f32x2":
        return f"pairf({lane('lo')},{lane('hi')})"
    if {dst, *src} & {"f16x2", "bf16x2"}:
        return f"((u32){lane('lo')}|(u32){lane('hi')}<<16)"
    return lane("")


# --- the table ------------------------------------------------------------------------------------


@cache
def _table() -> dict[str, dict[str, str]]:
    text = resources.files(__package__).joinpath("instructions.toml").read_text()
    return tomllib.loads(text)


def _expanded(key: str) -> Iterator[tuple[list[str], set[str]]]:
    """The spellings that a key stands for, one of each type, and what may be left out of each."""
    names = _table()["types"] | _table()["ways"]
    choices: list[list[list[str]]] = []
    may: set[str] = set()
    for before, word in pairwise(["", *key.split()]):
        name = word.removeprefix(".").removesuffix("?")
        members = names.get(name, name).split()
        if word.endswith("?"):
            may |= {*members}
            choices.append([members])
        elif choices and "." not in before + word:  # one more type of the same row
            choices[-1] += [[member] for member in members]
        else:
            choices.append([[member] for member in members])
    for parts in product(*choices):
        yield [part for some in parts for part in some], may


def _letters(kind: str, before: str) -> dict[str, str]:
    """What the letters of an expression stand for. before: the type before the last; or ""."""
    c_type = C_TYPE[kind]
    bits = 8 * SIZE[c_type]
    found = {
        "T": c_type, "U": f"u{bits}", "M": f"u{bits}", "P": f"u{max(bits, 32)}",
        "W": f"{c_type[0]}{2 * bits}",
        "V": f"u{2 * bits}", "{k}": kind, "{n}": str(bits), "{m}": str(bits - 1),
        "{s}": kind[0],
    }  # fmt: skip
    if before:
        found |= {"D": C_TYPE[before], "Q": f"u{8 * SIZE[C_TYPE[before]]}", "{d}": before}
    return found


def _rows_of(head: str, rows: Mapping[str, str]) -> Iterator[_Row]:
    for key, value in rows.items():
        signature, separator, expr = value.partition("): ")
        dst, _, given = signature.partition("(") if separator else ("T", "", "")
        expr = expr if separator else value
        operands = [name for name in "ABCE" if re.search(rf"\b{name}\b", expr)]
        src = given.split(",") if given else ["T"] * len(operands)
        for spelling, may in _expanded(key):
            needed = [word for word in spelling if word not in may]
            *before, kind = (word for word in needed if word in C_TYPE)
            needed.remove(kind)
            letters = _letters(kind, before[-1] if before else "")
            pattern = r"\b[TUMPWVDQ]\b|\{[knmsd]\}"
            text = re.sub(pattern, lambda m, of=letters: of[m[0]], expr)  # type: ignore[misc]
            to, *of = (letters.get(name, name) for name in (dst, *src))
            needs = frozenset(needed)
            yield _Row(head, tuple(spelling), kind, needs, frozenset(may), to, tuple(of), text)


def _comparisons() -> Iterator[_Row]:
    """setp without a second predicate operand (the assembler joins those), and set."""
    for row in _rows_of("setp", _table()["compare"]):
        *others, kind = row.spelling
        operands = (row.src[0],) * 2
        yield replace(row, dst="u32", src=operands, expr=f"-(u32)({row.expr})")
        made = [
            (kind, target, dst, true)
            for target, (dst, true) in _SET.items()
            if kind in _HALVES or target not in ("u16", "s16")
        ]
        if kind in _HALVES:
            packed = f"{kind}x2"
            made += [(packed, packed, "u32", _SET[kind][1])]
            made += [(packed, target, "u32", "0xffff") for target in ("u32", "s32")]
        for compared, target, dst, true in made:
            yield replace(
                row, head="set", spelling=(*others, target, compared), kind=compared,
                needs=row.needs | {target}, dst=dst, src=(C_TYPE[compared],) * 2,
                expr=f"(({row.expr})?{true}:0)",
            )  # fmt: skip


@cache
def _rows() -> dict[tuple[str, str], list[_Row]]:
    """By the instruction's name and the type of its operands."""
    found: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    apart = ("types", "ways", "compare", "internal", "hot")
    plain = (
        row for head, rows in _table().items() if head not in apart for row in _rows_of(head, rows)
    )
    for row in (*plain, *_comparisons()):
        found[row.head, row.kind].append(row)
    return dict(found)


@cache
def form_of(opcode: str) -> Form | None:
    """The form of `opcode`, or None where it is not a plain arithmetic instruction we know."""
    head, *modifiers = opcode.split(".")
    last = max((n for n, word in enumerate(modifiers) if word in C_TYPE), default=None)
    if last is None:
        return None
    kind = modifiers.pop(last)
    flags = frozenset(modifiers)
    for row in _rows().get((head, kind), ()):
        if row.needs <= flags <= row.needs | row.may:
            return row.form(flags)
    return None


def spellings() -> Iterator[str]:
    """One of every form, and of every set of modifiers."""
    for rows in _rows().values():
        for row in rows:
            for chosen in row.choices():
                words = (word for word in row.spelling if word not in row.may or word in chosen)
                yield ".".join((row.head, *words))


@cache
def internal() -> dict[str, Form]:
    """What the assembler needs for itself."""
    found = {}
    for name, value in _table()["internal"].items():
        signature, _, expr = value.partition("): ")
        dst, _, src = signature.partition("(")
        found[name] = Form(dst, tuple(src.split(",")), expr)
    return found


@cache
def all_forms() -> tuple[Form, ...]:
    """Every distinct form, in a fixed order: the position is the handler's number."""
    every = (row for rows in _rows().values() for row in rows)
    forms = (row.form(row.needs | chosen) for row in every for chosen in row.choices())
    return tuple(dict.fromkeys((*internal().values(), *filter(None, forms))))


def hot_spellings() -> list[str]:
    """Instructions of which each is a label of the interpreter."""
    return [s for pattern in _table()["hot"]["spellings"].split() for s in _alternatives(pattern)]


def _alternatives(pattern: str) -> list[str]:
    """ "a.{b,c}" as a.b and a.c."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [s for word in found[1].split(",") for s in _alternatives(f"{before}{word}{after}")]
