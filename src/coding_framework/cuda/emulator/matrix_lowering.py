"""mma.sync, ldmatrix, stmatrix, movmatrix and wmma as interpreter records (csrc/matrix.c)."""

from __future__ import annotations

import re

from coding_framework.cuda.emulator.assembler import Assembler
from coding_framework.cuda.emulator.operands import SPACES, address, refuse, source
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


def _shape(text: str) -> tuple[int, int, int] | None:
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


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
    shape: tuple[int, int, int],
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
    parts = [p for p in instruction.parts[1:] if p != "satfinite"]
    if len(parts) != 9 or parts[:2] != ["sync", "aligned"] or parts[3:5] != ["row", "col"]:
        raise refuse(instruction)
    shape, (d, a, b, c) = _shape(parts[2]), parts[5:]
    same = a == b or {a, b} == {"s8", "u8"}
    if (
        shape not in _INNER.get(a, ())
        or shape is None
        or not same
        or d != c
        or d not in _ACCUMULATORS[a]
    ):
        raise refuse(instruction)
    _multiply(asm, instruction, _MMA, shape, (d, a, b, c))


def lower_ldmatrix(asm: Assembler, instruction: Instruction) -> None:
    """ldmatrix and stmatrix .sync.aligned.m8n8.xN{.trans}.shared.b16."""
    parts = instruction.parts
    load = parts[0] == "ldmatrix"
    rest = [p for p in parts[1:] if p != "trans"]
    if (
        len(rest) != 6
        or rest[:3] != ["sync", "aligned", "m8n8"]
        or rest[3] not in ("x1", "x2", "x4")
        or rest[4] not in ("shared", "shared::cta")
        or rest[5] != "b16"
        or len(instruction.operands) != 2
    ):
        raise refuse(instruction)
    registers, place = instruction.operands if load else instruction.operands[::-1]
    slots = _slots(asm, registers, "f16", instruction)
    count = int(rest[3][1:])
    if len(slots) != count:
        raise refuse(instruction)
    at, offset = address(asm, place, "shared")
    asm.emit(
        "matrix", fl=_LDMATRIX if load else _STMATRIX, a=at, imm=offset, c=1,
        b=count | int("trans" in parts) << 4,
    )  # fmt: skip
    asm.emit_words((slots + [0] * 8)[:8])


def lower_movmatrix(asm: Assembler, instruction: Instruction) -> None:
    """movmatrix.sync.aligned.m8n8.trans.b16."""
    if instruction.parts[1:] != ["sync", "aligned", "m8n8", "trans", "b16"]:
        raise refuse(instruction)
    d, a = (_slots(asm, o, "f16", instruction)[0] for o in instruction.operands)
    asm.emit("matrix", fl=_MOVMATRIX, d=d, a=a)


def lower_wmma(asm: Assembler, instruction: Instruction) -> None:
    """wmma.load, wmma.store and wmma.mma."""
    parts = instruction.parts
    if parts[1] == "mma":
        _wmma_multiply(asm, instruction)
    elif parts[1] in ("load", "store"):
        _wmma_move(asm, instruction)
    else:
        raise refuse(instruction)


def _wmma_multiply(asm: Assembler, instruction: Instruction) -> None:
    """wmma.mma.sync.aligned.LAYOUT.LAYOUT.SHAPE.D.C (halves) or .D.A.B.C."""
    parts = [p for p in instruction.parts[2:] if p not in ("satfinite", "rn")]
    if parts[:2] != ["sync", "aligned"] or len(parts) not in (7, 9):
        raise refuse(instruction)
    if not {parts[2], parts[3]} <= {"row", "col"}:
        raise refuse(instruction)
    shape, kinds = _shape(parts[4]), parts[5:]
    d, a, b, c = (kinds[0], "f16", "f16", kinds[1]) if len(kinds) == 2 else kinds
    if (
        shape is None
        or a != b
        or shape not in _WMMA_SHAPES.get(a, ())
        or not {d, c} <= set(_ACCUMULATORS[a])
    ):
        raise refuse(instruction)
    _multiply(asm, instruction, _WMMA_MMA, shape, (d, a, b, c))


def _wmma_move(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    load = parts[1] == "load"
    which, layout, kind = parts[2], parts[5] if len(parts) > 5 else "", parts[-1]
    shape = _shape(parts[6]) if len(parts) > 6 else None
    space = "".join(parts[7:-1]).removesuffix("::cta")
    if (
        parts[3:5] != ["sync", "aligned"]
        or layout not in ("row", "col")
        or shape is None
        or kind not in _TYPES
        or space not in ("", "global", "shared")
        or which not in (("a", "b", "c") if load else ("d",))
        or len(instruction.operands) not in (2, 3)
    ):
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
