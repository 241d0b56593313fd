"""C source of the interpreter, from the table of forms.py.

Forms that nvcc emits often become labels of one function (`computed goto`). The others become
functions in libraries of their own, called through a table: gcc makes one (1 s) when the first
kernel asks for a form of it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from coding_framework.cuda.emulator.forms import (
    SIZE,
    Form,
    all_forms,
    form_of,
    hot_spellings,
    internal,
)

IN_A_LIBRARY = 96
"""Rare forms, which are one instruction's after the other's."""
_RARE_HEAD = '#include "lane_math.h"\n#include "rounding.h"\n#define M ((const u32*)R)\n'
_SLOT = {"u64": "u64", "i64": "i64", "f64": "f64", "f32x2": "u64", "f32": "f32", "i32": "i32"}


@cache
def hot_forms() -> dict[Form, int]:
    """Forms with a label, to their position behind the interpreter's own operations."""
    forms = dict.fromkeys(internal().values())
    for spelling in hot_spellings():
        form = form_of(spelling)
        if form is None:
            raise AssertionError(f"{spelling} has no form")
        forms[form] = None
    return {form: number for number, form in enumerate(forms)}


@cache
def rare_forms() -> dict[Form, int]:
    """Forms with a function, to their position in its table."""
    hot = hot_forms()
    rare = [form for form in all_forms() if form not in hot]
    return {form: number for number, form in enumerate(rare)}


def _loop(form: Form) -> str:
    """The C block that runs `form` over the lanes."""
    operands = [("A", "a"), ("B", "b"), ("C", "c"), ("E", "imm")][: len(form.src)]
    lines = []
    inner = []
    for (name, field), kind in zip(operands, form.src, strict=True):
        slot = _SLOT.get(kind, "u32")
        lines.append(f"const {slot}*{name}_=(const {slot}*)(R+I->{field});")
        narrow = f"({kind})" if kind in ("u8", "i8", "u16", "i16") else ""
        value = "u32" if SIZE[kind] < 4 and not narrow else slot if not narrow else kind
        inner.append(f"const {value} {name}={narrow}{name}_[l];")
    target = _SLOT.get(form.dst, "u32")
    result = form.dst if form.dst in ("u8", "i8", "u16", "i16") else target
    lines.append(f"{target}*D_=({target}*)(R+I->d);")
    if form.carry:
        lines.append("u32*X_=(u32*)(R+SLOT_CARRY);")
        inner.append("u32 X=X_[l];")
    inner.append(f"const {result} t=({result})({form.expr});")
    inner.append(f"D_[l]=M[l]?({target})t:D_[l];")
    if form.carry:
        inner.append("X_[l]=M[l]?X:X_[l];")
    loop = f"EACH_LANE{{{''.join(inner)}}}"
    if not form.carry:
        loop = f'\n_Pragma("GCC ivdep")\n{loop}'
    if form.rounding:
        loop = f"set_rounding(SET_{form.rounding});{loop}set_rounding(SET_RN);"
    return f"{{{''.join(lines)}{loop}}}"


def c_source(name: str) -> str:
    """Text of a source of the interpreter."""
    return resources.files(__package__).joinpath("csrc", name).read_text()


def operations() -> list[str]:
    """The interpreter's own operations, by their numbers."""
    listed, _, _ = c_source("interpreter.c.in").partition("OP_COUNT")
    return [name.lower() for name in re.findall(r"\bOP_(\w+)", listed)]


def sources() -> dict[str, str]:
    """File name to text of everything gcc gets."""
    names = ("rt.h", "rounding.h", "lane_math.h", "memory.c", "warp_ops.c", "scheduler.c",
             "matrix.c", "output.c", "races.c")  # fmt: skip
    files = {name: c_source(name) for name in names}
    hot, rare = hot_forms(), rare_forms()
    labels = "\n".join(f"    &&form_{number}," for number in hot.values())
    handlers = "\n".join(f"form_{n}: {_loop(form)} NEXT;" for form, n in hot.items())
    template = c_source("interpreter.c.in")
    files["interpreter.c"] = template.replace("@LABELS@", labels).replace("@HANDLERS@", handlers)
    files["rare_table.c"] = (
        f'#include "rt.h"\ntypedef void (*RareForm)(char*,const In*);\n'
        f"RareForm rare_forms[{len(rare)}];\n"
    )
    return files


def rare_sources(library: int) -> dict[str, str]:
    """As `sources`, of one library of rare forms."""
    headers = ("rt.h", "rounding.h", "lane_math.h")
    functions = [
        f"void rare_{n}(char*R,const In*I){_loop(form)}"
        for form, n in rare_forms().items()
        if n // IN_A_LIBRARY == library
    ]
    text = "\n".join([_RARE_HEAD, *functions])
    return {**{name: c_source(name) for name in headers}, "rare.c": text}
