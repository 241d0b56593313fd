"""mma.sync, ldmatrix, stmatrix, movmatrix and wmma as interpreter records (csrc/matrix.c)."""

from __future__ import annotations

import re

from coding_framework.cuda.emulator.assembler import Assembler
from coding_framework.cuda.emulator.operands import SPACES, address, matched, refuse, source
from coding_framework.cuda.emulator.program import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Vector,
)

_TYPES = {"f16": 0, "bf16": 1, "tf32": 2, "f64": 3, "s8": 4, "u8": 5, "f32": 6, "s32": 7}
_MMA, _LDMATRIX, _STMATRIX, _MOVMATRIX, _WMMA_LOAD, _WMMA_STORE, _WMMA_MMA = range(7)
_PER_REGISTER = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}
_INNER = {
    "f16": ((16, 8, 8), (16, 8, 16)),
    "bf16": ((16, 8, 8), (16, 8, 16)),
    "tf32": ((16, 8, 4), (16, 8, 8)),
    "s8": ((8, 8, 16), (16, 8, 16), (16, 8, 32)),
    "u8": ((8, 8, 16), (16, 8, 16), (16, 8, 32)),
    "f64": ((8, 8, 4),),
}
"""Shapes of mma.sync by the type of A."""
_WMMA_SHAPES = {
    "f16": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "bf16": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "tf32": ((16, 16, 8),),
    "s8": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "u8": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "f64": ((8, 8, 4),),
}
_ACCUMULATORS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "u8": ("s32",),
    "f64": ("f64",),
}  # fmt: skip


Shape = tuple[int, int, int]
_SHAPE = r"m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)"


def _shape(found: re.Match[str]) -> Shape:
    return int(found["m"]), int(found["n"]), int(found["k"])


def _slots(asm: Assembler, operand: Operand, kind: str, instruction: Instruction) -> list[int]:
    """Slots of a fragment; each register must have the width of its type."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    slots = []
    for item in items:
        if isinstance(item, Immediate):
            slots.append(source(asm, item, "f32" if kind == "f32" else "u32"))
        elif isinstance(item, Register) and item.wide == (kind == "f64"):
            slots.append(asm.frame.registers[item])
        else:
            raise refuse(instruction)
    if not 1 <= len(slots) <= 8:
        raise refuse(instruction)
    return slots


def _multiply(
    asm: Assembler,
    instruction: Instruction,
    which: int,
    shape: Shape,
    kinds: tuple[str, str, str, str],
) -> None:
    """kinds: of d, a, b, c, as the operands come."""
    m, n, k = shape
    if len(instruction.operands) != 4:
        raise refuse(instruction)
    lists = [
        _slots(asm, operand, kind, instruction)
        for operand, kind in zip(instruction.operands, kinds, strict=True)
    ]
    sizes = {0: m * n, 1: m * k, 2: k * n, 3: m * n}
    for number, (slots, kind) in enumerate(zip(lists, kinds, strict=True)):
        held = len(slots) * _PER_REGISTER.get(kind, 1) * 32
        exact = held == sizes[number]
        if not exact and (which == _MMA or held < sizes[number] or held % sizes[number]):
            raise refuse(instruction)
    d, a, b, c = (_TYPES[kind] for kind in kinds)
    packed = m | n << 8 | k << 16 | a << 24 | b << 28 | c << 32 | d << 36
    packed |= int("satfinite" in instruction.parts) << 40
    asm.emit("matrix", fl=which, imm=packed, c=4)
    asm.emit_words([s for slots in lists for s in (slots + [0] * 8)[:8]])


def lower_mma(asm: Assembler, instruction: Instruction) -> None:
    """mma.sync.aligned.SHAPE.row.col{.satfinite}.D.A.B.C."""
    pattern = rf"mma\.sync\.aligned\.{_SHAPE}\.row\.col(?:\.satfinite)?"
    found = matched(instruction, pattern + r"((?:\.\w+){4})")
    d, a, b, c = found[4][1:].split(".")
    same = a == b or {a, b} == {"s8", "u8"}
    if _shape(found) not in _INNER.get(a, ()) or not same or d != c or d not in _ACCUMULATORS[a]:
        raise refuse(instruction)
    _multiply(asm, instruction, _MMA, _shape(found), (d, a, b, c))


def lower_ldmatrix(asm: Assembler, instruction: Instruction) -> None:
    """ldmatrix and stmatrix .sync.aligned.m8n8.xN{.trans}.shared.b16."""
    pattern = r"(ld|st)matrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(?:::cta)?"
    way, count, turned = matched(instruction, pattern + r"(?:\.trans)?\.b16", 2).groups()
    load = way == "ld"
    registers, place = instruction.operands if load else instruction.operands[::-1]
    slots = _slots(asm, registers, "f16", instruction)
    if len(slots) != int(count):
        raise refuse(instruction)
    at, offset = address(asm, place, "shared")
    asm.emit(
        "matrix", fl=_LDMATRIX if load else _STMATRIX, a=at, imm=offset, c=1,
        b=int(count) | int(turned is not None) << 4,
    )  # fmt: skip
    asm.emit_words((slots + [0] * 8)[:8])


def lower_movmatrix(asm: Assembler, instruction: Instruction) -> None:
    matched(instruction, r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16")
    d, a = (_slots(asm, o, "f16", instruction)[0] for o in instruction.operands)
    asm.emit("matrix", fl=_MOVMATRIX, d=d, a=a)


def lower_wmma(asm: Assembler, instruction: Instruction) -> None:
    """wmma.load, wmma.store and wmma.mma."""
    if instruction.parts[1] == "mma":
        _wmma_multiply(asm, instruction)
    else:
        _wmma_move(asm, instruction)


def _wmma_multiply(asm: Assembler, instruction: Instruction) -> None:
    """wmma.mma.sync.aligned.LAYOUT.LAYOUT.SHAPE.D.C (halves) or .D.A.B.C."""
    pattern = rf"wmma\.mma\.sync\.aligned\.(?:row|col)\.(?:row|col)\.{_SHAPE}(?:\.rn)?"
    found = matched(
        instruction, pattern + r"((?:\.[a-z]+\d+){2}|(?:\.[a-z]+\d+){4})(?:\.satfinite)?"
    )
    kinds = found[4][1:].split(".")
    d, a, b, c = (kinds[0], "f16", "f16", kinds[1]) if len(kinds) == 2 else kinds
    known = _shape(found) in _WMMA_SHAPES.get(a, ())
    if a != b or not known or not {d, c} <= set(_ACCUMULATORS[a]):
        raise refuse(instruction)
    _multiply(asm, instruction, _WMMA_MMA, _shape(found), (d, a, b, c))


def _wmma_move(asm: Assembler, instruction: Instruction) -> None:
    pattern = r"wmma\.(?P<way>load|store)\.(?P<which>[abcd])\.sync\.aligned\.(?P<layout>row|col)"
    pattern += rf"\.{_SHAPE}(?:\.(?P<space>global|shared)(?:::cta)?)?\.(?P<kind>\w+)"
    found = matched(instruction, pattern, 2, 3)
    load, which, layout = found["way"] == "load", found["which"], found["layout"]
    shape, space, kind = _shape(found), found["space"] or "", found["kind"]
    if kind not in _TYPES or load == (which == "d"):
        raise refuse(instruction)
    m, n, k = shape
    rows, columns = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
    first, second = instruction.operands[:2]
    registers, place = (first, second) if load else (second, first)
    slots = _slots(asm, registers, kind, instruction)
    held = len(slots) * _PER_REGISTER.get(kind, 1) * 32
    if held % (rows * columns) or not isinstance(place, Address):
        raise refuse(instruction)
    default = Immediate(columns if layout == "row" else rows)
    stride = instruction.operands[2] if len(instruction.operands) == 3 else default
    at, offset = address(asm, place, space)
    asm.emit(
        "matrix", fl=_WMMA_LOAD if load else _WMMA_STORE, a=at, b=source(asm, stride, "u32"),
        c=2, d=SPACES[space], imm=offset,
    )  # fmt: skip
    asm.emit_words([rows, columns, _TYPES[kind], int(layout == "col"), len(slots), 0, 0, 0])
    asm.emit_words((slots + [0] * 8)[:8])
