"""The one table of what PTX instructions compute, lane by lane.

`form_of(opcode)` gives the `Form` of an arithmetic instruction: C types and a C expression over A,
B, C, E, and X (the carry). codegen.py makes one interpreter handler per distinct form; assembler.py
looks the form up. Modifiers are matched strictly: an opcode with one that is not known has no form
and ends as `unsupported`, never as a similar instruction.

Source: NVIDIA, Parallel Thread Execution ISA 9.0, chapter 9.7. Approximate instructions are
computed at least as exactly as the manual's stated error.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

from coding_framework.cuda.emulator.arithmetic_forms import (
    approximate,
    approximated,
    arithmetic,
    carry,
    copysign,
    div,
    fma,
    mad,
    madc,
    min_max,
    mul,
    neg_abs,
    reciprocal,
    rem,
    testp,
)
from coding_framework.cuda.emulator.conversions import conversion_spellings, convert
from coding_framework.cuda.emulator.forms import (
    BITS,
    C_TYPE,
    HALVES,
    INTEGERS,
    INTERNAL,
    Form,
    Maker,
    fixed,
    rows,
)
from coding_framework.cuda.emulator.logic_forms import (
    COMPARE,
    UNORDERED,
    bit_forms,
    logic,
    mov,
    selp,
    set,
    setp,
    shf,
    shift,
    slct,
)


@cache
def form_of(opcode: str) -> Form | None:
    """The form of `opcode`, or None where it is not a plain arithmetic instruction we know."""
    head, *modifiers = opcode.split(".")
    maker = _MAKERS.get(head)
    return maker(modifiers) if maker and modifiers else None


def _makers() -> dict[str, Maker]:
    return {
        "add": arithmetic("add", "+"), "sub": arithmetic("sub", "-"),
        "addc": carry("add"), "subc": carry("sub"), "mul": mul, "mad": mad, "madc": madc,
        "fma": fma, "div": div, "rem": rem, "min": min_max("min"), "max": min_max("max"),
        "neg": neg_abs("neg"), "abs": neg_abs("abs"), "copysign": copysign, "testp": testp,
        "sqrt": rows(*approximated("sqrtf(A)", "sqrt(A)")),
        "rcp": reciprocal("rcp"), "rsqrt": reciprocal("rsqrt"),
        "ex2": approximate("ex2"), "lg2": approximate("lg2"), "sin": approximate("sin"),
        "cos": approximate("cos"), "tanh": approximate("tanh"),
        "setp": setp, "set": set, "selp": selp, "slct": slct, "mov": mov, "cvt": convert,
        "and": logic("A&B"), "or": logic("A|B"), "xor": logic("A^B"), "not": logic("~A"),
        "cnot": fixed({k: Form(C_TYPE[k], (C_TYPE[k],), "(A==0)") for k in BITS}),
        "shl": shift("shl"), "shr": shift("shr"), "shf": shf, **bit_forms(),
    }  # fmt: skip


_MAKERS: dict[str, Maker] = {}


def _spellings() -> Iterable[str]:
    """Spellings that between them reach every form; many share one."""
    rounding = ("", ".rn", ".rz", ".rm", ".rp")
    flags = ("", ".ftz", ".sat", ".ftz.sat")
    kinds = (*INTEGERS, *BITS, "f32", "f64", *HALVES, "f32x2", "pred")
    for head, k in product(("add", "sub", "mul", "fma"), kinds):
        for r, f in product(rounding, (*flags, ".relu", ".cc")):
            yield f"{head}{r}{f}.{k}"
    for head, k in product(("div", "sqrt", "rcp", "rsqrt"), kinds):
        for r, f in product((*rounding, ".approx", ".full"), flags):
            yield f"{head}{r}{f}.{k}"
    for head, k, f in product(("ex2", "lg2", "sin", "cos", "tanh"), kinds, flags):
        yield f"{head}.approx{f}.{k}"
    for head, k, p, c in product(
        ("mul", "mad", "madc"), INTEGERS, ("lo", "hi", "wide"), ("", ".cc", ".sat")
    ):
        yield f"{head}.{p}{c}.{k}"
    for head, k, c in product(("addc", "subc"), INTEGERS, ("", ".cc")):
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
    for name, k, f in product((*COMPARE, *UNORDERED, "num", "nan"), kinds, ("", ".ftz")):
        yield f"setp.{name}{f}.{k}"
        for target in ("u32", "f32", "f16", "bf16", "u16", "f16x2", "bf16x2"):
            yield f"set.{name}{f}.{target}.{k}"
    for k, s, f in product(kinds, ("s32", "f32"), ("", ".ftz")):
        yield f"slct{f}.{k}.{s}"
    yield from ("vabsdiff4.u32.u32.u32", "vabsdiff4.u32.u32.u32.add")
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


_MAKERS.update(_makers())
