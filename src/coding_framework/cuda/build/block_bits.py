"""How many blocks a kernel can tell apart: the bits of `blockIdx` on which anything depends.

An index that is kept in 16 bits is right until a grid has more blocks than that counts. Demanded
bits are found from the uses backwards, in the PTX: a mask, a narrow conversion and a shift pass few
of them on, sums and products those below the highest, everything else asks for all.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable

from coding_framework.cuda.build.ptx_summary import kernel_body

_WHOLE = (1 << 64) - 1
_INSTRUCTION = re.compile(r"^\s*(?:@!?(%\w+)\s+)?([a-z][\w.]*)(?:\s+([^;]*))?;", re.MULTILINE)
_OTHER_WAYS = re.compile(r"\b(?:atom|red|call)\b|%cluster|%smid|%clock|%globaltimer")
"""By which blocks may share out their work otherwise, or that are not looked through."""
_NARROWS = re.compile(r"\bcvt\.\w+\.[us](?:8|16)\b|, (?:255|65535);|\bshl\.b64[^;]*, (?:48|56);")
_REGISTER = re.compile(r"%[\w.]+")
_AXES = ("x", "y", "z")

Demand = Callable[[int, list[int | None], int], int]
"""Of an operand: the bits asked of it, given those of the result, the operands' constants and the
operand's number."""


def _below(bits: int) -> int:
    """All bits up to the highest of these."""
    return (1 << bits.bit_length()) - 1


def _of_product(bits: int, constants: list[int | None], number: int) -> int:
    other = constants[1 - number]
    if not other:
        return _below(bits)
    return _below(bits) >> ((other & -other).bit_length() - 1)


def _of_product_and_sum(bits: int, constants: list[int | None], number: int) -> int:
    return _below(bits) if number == 2 else _of_product(bits, constants[:2], number)


def _of_mask(bits: int, constants: list[int | None], number: int) -> int:
    other = constants[1 - number]
    return bits if other is None else bits & other


def _of_shift(bits: int, constants: list[int | None], number: int) -> int:
    by = constants[1]
    return _WHOLE if number == 1 or by is None else bits >> by


_LOW: dict[str, Demand] = {
    "add": lambda bits, constants, number: _below(bits),
    "sub": lambda bits, constants, number: _below(bits),
    "mul.lo": _of_product,
    "mad.lo": _of_product_and_sum,
    "and": _of_mask,
    "shl": _of_shift,
    "mov": lambda bits, constants, number: bits,
}


Extents = tuple[int, int, int]


def too_few_bits(ptx: str, kernel: str, grid: Extents, block: Extents) -> str | None:
    """A sentence where blocks of a launch do the same, since nothing of the kernel depends on the
    bits in which their numbers differ. Looks at kernels that narrow a number to 8 or 16 bits."""
    body = kernel_body(ptx, kernel) if max(grid) > 1 else None
    if body is None or not _NARROWS.search(body) or _OTHER_WAYS.search(body):
        return None
    asked = demanded(body, block)
    for axis, blocks in zip(_AXES, grid, strict=True):
        bits = asked[f"%ctaid.{axis}"]
        told = 1 << bits.bit_length()
        if bits == told - 1 > 0 and blocks > told:
            return f"its index tells {told} of {blocks} blocks apart (blockIdx.{axis})"
    return None


def demanded(body: str, block: Extents) -> dict[str, int]:
    """The bits of each register that something depends on. block: threads, as constants."""
    code = [
        (predicate, name.split("."), [operand.strip() for operand in operands.split(",")])
        for predicate, name, operands in _INSTRUCTION.findall(body)
    ]
    defined = Counter(operands[0] for _, _, operands in code)
    threads = {f"%ntid.{axis}": count for axis, count in zip(_AXES, block, strict=True)}
    known = {
        to: threads[of[0]]
        for _, name, (to, *of) in code
        if name[0] == "mov" and of[0] in threads and defined[to] == 1
    }
    asked: dict[str, int] = defaultdict(int)
    before = -1
    while before != (before := sum(asked.values())):
        for predicate, name, operands in reversed(code):
            if predicate:
                asked[predicate] = _WHOLE
            demand = None if "{" in "".join(operands) else _demand(name)
            constants = [_constant(operand, known) for operand in operands[1:]]
            for number, operand in enumerate(operands):
                for register in _REGISTER.findall(operand):
                    if demand is None:
                        asked[register] = _WHOLE
                    elif number:
                        asked[register] |= demand(asked[operands[0]], constants, number - 1)
    return asked


def _demand(name: list[str]) -> Demand | None:
    """None: all bits of all operands."""
    if name[0] == "cvt" and len(name) == 3 and name[1][0] in "us" and name[2][0] in "us":
        narrow = min(int(name[-1][1:]), int(name[-2][1:]))
        width, signed = (1 << narrow) - 1, name[-1][0] == "s"
        return lambda bits, *rest: width if signed and bits else bits & width
    plain = ".".join(name[:2]) if name[0] in ("mul", "mad") else name[0]
    return _LOW.get(plain)


def _constant(operand: str, known: dict[str, int]) -> int | None:
    if re.fullmatch(r"\d+", operand):
        return int(operand)
    return known.get(operand)
