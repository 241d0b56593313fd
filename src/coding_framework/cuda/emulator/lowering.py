"""What one PTX instruction becomes: interpreter records, by opcode and strictly by modifiers."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.cuda.emulator.assembler import (
    BASE_GLOBAL,
    BASE_LOCAL,
    BASE_PARAM,
    BASE_SHARED,
    Assembler,
)
from coding_framework.cuda.emulator.forms import form_of, internal
from coding_framework.cuda.emulator.matrix_lowering import (
    lower_ldmatrix,
    lower_mma,
    lower_movmatrix,
    lower_wmma,
)
from coding_framework.cuda.emulator.memory_lowering import (
    lower_atomic,
    lower_copy,
    lower_load,
    lower_store,
)
from coding_framework.cuda.emulator.operands import (
    emit_form,
    emit_special,
    form_record,
    immediate_bits,
    known_form,
    matched,
    refuse,
    source,
    with_slot,
)
from coding_framework.cuda.emulator.program import (
    TYPE_BYTES,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Vector,
)
from coding_framework.cuda.emulator.warp_lowering import (
    lower_active_mask,
    lower_barrier,
    lower_call,
    lower_fence,
    lower_match,
    lower_nothing,
    lower_redux,
    lower_shuffle,
    lower_trap,
    lower_vote,
)


def lower(asm: Assembler, instruction: Instruction) -> None:
    """Emit the records of `instruction`. Raises CandidateFault(unsupported) with its name."""
    head = instruction.parts[0]
    special = _LOWERERS.get(head)
    if special is not None:
        special(asm, instruction)
        return
    form = form_of(instruction.opcode)
    if form is None or len(instruction.operands) != len(form.src) + 1:
        raise refuse(instruction)
    emit_form(asm, form, instruction.operands[0], instruction.operands[1:])


# --- moves ----------------------------------------------------------------------------------------


def _move(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    if len(instruction.operands) != 2 or len(parts) != 2 or parts[1] not in TYPE_BYTES:
        raise refuse(instruction)
    target, value = instruction.operands
    kind = parts[1]
    if isinstance(value, Vector):
        _pack(asm, instruction, kind, target, value)
    elif isinstance(target, Vector):
        _unpack(asm, instruction, kind, target, value)
    elif isinstance(value, Special) and isinstance(target, Register):
        wide = target.wide
        emit_special(asm, value.name, asm.frame.registers[target], wide)
    else:
        form = form_of(instruction.opcode)
        if form is None:
            raise refuse(instruction)
        if isinstance(value, Immediate) and kind in ("f32", "f64"):
            value = Immediate(immediate_bits(value, kind))
        emit_form(asm, form, target, (value,))


def _pack(
    asm: Assembler, instruction: Instruction, kind: str, target: Operand, value: Vector
) -> None:
    bits = TYPE_BYTES[kind] * 8 // max(len(value.items), 1)
    slots = [source(asm, item, "u32") for item in value.items]
    if (TYPE_BYTES[kind] * 8, len(slots)) not in ((64, 2), (64, 4), (32, 2), (32, 4), (16, 2)):
        raise refuse(instruction)

    def combine(name: str, pair: list[int]) -> int:
        scratch = asm.frame.scratch()
        form_record(asm, internal()[name], scratch, pair)
        return scratch

    if bits == 8 and len(slots) == 4:
        slots = [combine("pack.b16", slots[:2]), combine("pack.b16", slots[2:])]
    elif bits == 16 and len(slots) == 4:
        slots = [combine("pack.b32", slots[:2]), combine("pack.b32", slots[2:])]
    name = {64: "pack.b64", 32: "pack.b32", 16: "pack.b16"}[TYPE_BYTES[kind] * 8]
    wide = TYPE_BYTES[kind] == 8
    with_slot(asm, target, wide, False, lambda d: form_record(asm, internal()[name], d, slots))


def _unpack(
    asm: Assembler, instruction: Instruction, kind: str, target: Vector, value: Operand
) -> None:
    size = TYPE_BYTES[kind] * 8
    count = len(target.items)
    if (size, count) not in ((64, 2), (64, 4), (32, 2), (32, 4), (16, 2)):
        raise refuse(instruction)

    def split(slot: int, name: str) -> list[int]:
        low, high = asm.frame.scratch(), asm.frame.scratch()
        form_record(asm, internal()[f"low.{name}"], low, [slot])
        form_record(asm, internal()[f"high.{name}"], high, [slot])
        return [low, high]

    slot = source(asm, value, "u64" if size == 64 else "u32")
    parts = split(slot, f"b{size}")
    if count == 4:
        parts = [p for half in parts for p in split(half, f"b{size // 2}")]
    for item, part in zip(target.items, parts, strict=True):
        if not isinstance(item, Sink):
            form = known_form("mov.b32")
            with_slot(asm, item, False, False,
                      lambda d, p=part, f=form: form_record(asm, f, d, [p]))  # type: ignore[misc]  # fmt: skip


_WINDOWS = {"global": BASE_GLOBAL, "shared": BASE_SHARED, "local": BASE_LOCAL, "const": 0,
            "param": BASE_PARAM}  # fmt: skip
_SPACE = r"(global|shared(?!::cluster)|local|const|param)(?:::\w+)?"


def _cvta(asm: Assembler, instruction: Instruction) -> None:
    back, space = matched(instruction, rf"cvta(\.to)?\.{_SPACE}\.u64", 2).groups()
    target, value = instruction.operands
    if space in ("global", "const"):
        emit_form(asm, known_form("mov.b64"), target, (value,))
        return
    window = _WINDOWS[space]
    emit_form(asm, internal()["add.base"], target, (value, Immediate(-window if back else window)))


def _isspacep(asm: Assembler, instruction: Instruction) -> None:
    (space,) = matched(instruction, rf"isspacep\.{_SPACE}", 2).groups()
    target, value = instruction.operands
    emit_form(asm, internal()["isspacep"], target, (value, Immediate(_WINDOWS[space])))


# --- predicates -----------------------------------------------------------------------------------


def _setp(asm: Assembler, instruction: Instruction) -> None:
    parts = list(instruction.parts)
    join = next((p for p in ("and", "or", "xor") if p in parts[2:3]), "")
    if join:
        parts.remove(join)
    form = form_of(".".join(parts))
    operands = instruction.operands
    if form is None or len(operands) != (4 if join else 3):
        packed = _setp_packed(asm, instruction, parts, join)
        if packed:
            return
        raise refuse(instruction)
    target = operands[0]
    pair = target if isinstance(target, Pair) else None
    if not join and pair is None:
        emit_form(asm, form, target, operands[1:3])
        return
    test = asm.frame.scratch()
    sources = [source(asm, o, k) for o, k in zip(operands[1:3], form.src, strict=True)]
    form_record(asm, form, test, sources)
    _join(asm, pair.first if pair else target, test, join, operands)
    if pair:
        inverse = asm.frame.scratch()
        form_record(asm, known_form("not.pred"), inverse, [test])
        _join(asm, pair.second, inverse, join, operands)


def _join(
    asm: Assembler, target: Operand, test: int, join: str, operands: tuple[Operand, ...]
) -> None:
    form, sources = known_form("mov.b32"), [test]
    if join:
        form, sources = known_form(f"{join}.pred"), [test, source(asm, operands[3], "u32")]
    with_slot(asm, target, False, False, lambda d: form_record(asm, form, d, sources))


def _setp_packed(asm: Assembler, instruction: Instruction, parts: list[str], join: str) -> bool:
    """setp on f16x2 and bf16x2: p from the lower half, q from the upper."""
    base = {"f16x2": "f16", "bf16x2": "bf16"}.get(parts[-1])
    target = instruction.operands[0] if instruction.operands else None
    if base is None or not isinstance(target, Pair):
        return False
    form = form_of(".".join([*parts[:-1], base]))
    if form is None or len(instruction.operands) != (4 if join else 3):
        return False
    a, b = (source(asm, o, "u32") for o in instruction.operands[1:3])
    for half, out in (("low.b32", target.first), ("high.b32", target.second)):
        x, y, test = asm.frame.scratch(), asm.frame.scratch(), asm.frame.scratch()
        form_record(asm, internal()[half], x, [a])
        form_record(asm, internal()[half], y, [b])
        form_record(asm, form, test, [x, y])
        _join(asm, out, test, join, instruction.operands)
    return True


_LOWERERS: dict[str, Callable[[Assembler, Instruction], None]] = {
    "ld": lower_load,
    "ldu": lower_load,
    "st": lower_store,
    "atom": lower_atomic,
    "red": lower_atomic,
    "cp": lower_copy,
    "mma": lower_mma,
    "ldmatrix": lower_ldmatrix,
    "stmatrix": lower_ldmatrix,
    "movmatrix": lower_movmatrix,
    "wmma": lower_wmma,
    "mov": _move,
    "cvta": _cvta,
    "isspacep": _isspacep,
    "setp": _setp,
    "bar": lower_barrier,
    "barrier": lower_barrier,
    "membar": lower_fence,
    "fence": lower_fence,
    "shfl": lower_shuffle,
    "vote": lower_vote,
    "activemask": lower_active_mask,
    "match": lower_match,
    "redux": lower_redux,
    "call": lower_call,
    "trap": lower_trap,
    "brkpt": lower_trap,
    "nanosleep": lower_nothing,
    "prefetch": lower_nothing,
    "prefetchu": lower_nothing,
    "createpolicy": lower_nothing,  # the accesses that name it ignore it
}
