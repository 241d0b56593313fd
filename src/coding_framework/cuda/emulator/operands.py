"""Operands of an instruction as slots of the frame: registers, literals, symbols, addresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from coding_framework.cuda.emulator.assembler import BASE_SHARED, Assembler
from coding_framework.cuda.emulator.codegen import IN_A_LIBRARY, hot_forms, rare_forms
from coding_framework.cuda.emulator.forms import SIZE, Form, form_of, internal
from coding_framework.cuda.emulator.frame import SINK
from coding_framework.cuda.emulator.library import load_rare
from coding_framework.cuda.emulator.program import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    unsupported,
)

_AXES = {"x": 0, "y": 1, "z": 2}
SPECIAL_REGISTERS = {
    "%warpid": 12, "%nwarpid": 13, "%smid": 14, "%nsmid": 15, "%dynamic_smem_size": 16,
    "%total_smem_size": 17, "%envreg1": 18, "%envreg2": 19, "%laneid": 20, "%lanemask_eq": 21,
    "%lanemask_le": 22, "%lanemask_lt": 23, "%lanemask_ge": 24, "%lanemask_gt": 25,
    "%clock": 26, "%clock_hi": 27, "%clock64": 28, "%globaltimer": 30, "%globaltimer_lo": 31,
    "%globaltimer_hi": 32, "%gridid": 33,
}  # fmt: skip
SPACES = {"global": 0, "shared": 1, "local": 2, "const": 3, "param": 4, "": 5}


def refuse(instruction: Instruction) -> Exception:
    where = f" (line {instruction.line})" if instruction.line else ""
    return unsupported(f"the instruction {instruction.opcode}{where}")


def matched(instruction: Instruction, pattern: str, *operands: int) -> re.Match[str]:
    """What the opcode is, by a pattern of all of it. operands: how many there may be; (): any.
    Raises CandidateFault(unsupported) where it is another."""
    found = re.fullmatch(pattern, instruction.opcode)
    if found is None or (operands and len(instruction.operands) not in operands):
        raise refuse(instruction)
    return found


def emit_form(asm: Assembler, form: Form, target: Operand, operands: tuple[Operand, ...]) -> None:
    """One arithmetic record, with conversions where a register is wider than the type."""
    sources = [source(asm, o, kind) for o, kind in zip(operands, form.src, strict=True)]
    wide = SIZE[form.dst] == 8
    with_slot(asm, target, wide, form.dst[0] == "i", lambda d: form_record(asm, form, d, sources))


def form_record(asm: Assembler, form: Form, d: int, sources: list[int]) -> None:
    number = hot_forms().get(form)
    if number is not None:
        asm.emit_form(number, False, d, sources)
        return
    number = rare_forms().get(form)
    if number is None:
        raise AssertionError(f"a form without a handler: {form}")
    load_rare(number // IN_A_LIBRARY)
    asm.emit_form(number, True, d, sources)


def with_slot(
    asm: Assembler, target: Operand, wide: bool, signed: bool, emit: Callable[[int], None]
) -> None:
    """Emit into the slot of `target`, through a scratch slot where its width differs."""
    if isinstance(target, Sink):
        emit(SINK)
        return
    if not isinstance(target, Register):
        raise unsupported(f"the destination {target!r}")
    slot = asm.frame.registers[target]
    if target.wide == wide:
        emit(slot)
        return
    scratch = asm.frame.scratch()
    emit(scratch)
    if target.wide:
        form_record(asm, internal()["extend.s64" if signed else "extend.u64"], slot, [scratch])
    else:
        form_record(asm, internal()["low.b64"], slot, [scratch])


def source(asm: Assembler, operand: Operand, kind: str) -> int:
    """Slot that holds `operand` as C type `kind`."""
    wide = SIZE[kind] == 8
    if isinstance(operand, Register):
        slot = asm.frame.registers[operand]
        if operand.wide == wide:
            return slot
        scratch = asm.frame.scratch()
        name = "low.b64" if operand.wide else ("extend.s64" if kind == "i64" else "extend.u64")
        form_record(asm, internal()[name], scratch, [slot])
        return scratch
    if isinstance(operand, Immediate):
        return asm.frame.constant(immediate_bits(operand, kind), wide)
    if isinstance(operand, Special):
        scratch = asm.frame.scratch()
        emit_special(asm, operand.name, scratch, wide)
        return scratch
    if isinstance(operand, Symbol):
        variable = asm.variable(operand)
        if variable is not None and variable.space == "local":
            scratch = asm.frame.scratch()
            asm.emit("local_address", d=scratch, imm=asm.local[variable] + operand.offset)
            if not wide:
                narrow = asm.frame.scratch()
                form_record(asm, internal()["low.b64"], narrow, [scratch])
                return narrow
            return scratch
        return asm.frame.constant(asm.address_of(operand), wide)
    if isinstance(operand, Negated):
        scratch = asm.frame.scratch()
        form_record(asm, known_form("not.pred"), scratch, [asm.frame.registers[operand.register]])
        return scratch
    raise unsupported(f"the operand {operand!r}")


def known_form(opcode: str) -> Form:
    form = form_of(opcode)
    assert form is not None
    return form


def immediate_bits(value: Immediate, kind: str) -> int:
    """Bit pattern of a literal where an operand of C type `kind` is expected."""
    if kind == "f32":
        if value.kind == "f64":
            as_double = struct.unpack("<d", struct.pack("<Q", value.bits))[0]
            return int(struct.unpack("<I", struct.pack("<f", as_double))[0])
        if value.kind == "int":
            return int(struct.unpack("<I", struct.pack("<f", float(value.bits)))[0])
    elif kind == "f64":
        if value.kind == "f32":
            single = struct.unpack("<f", struct.pack("<I", value.bits))[0]
            return int(struct.unpack("<Q", struct.pack("<d", single))[0])
        if value.kind == "int":
            return int(struct.unpack("<Q", struct.pack("<d", float(value.bits)))[0])
    return value.bits


def emit_special(asm: Assembler, name: str, slot: int, wide: bool) -> None:
    """Read a special register into a slot."""
    base, _, axis = name.partition(".")
    groups = {"%tid": 0, "%ntid": 3, "%ctaid": 6, "%nctaid": 9}
    if base in groups:
        if axis == "w":
            asm.emit("special", d=slot, imm=29, fl=int(wide))
            return
        asm.emit("special", d=slot, imm=groups[base] + _AXES.get(axis, 0), fl=int(wide))
        return
    number = SPECIAL_REGISTERS.get(name)
    if number is None:
        raise unsupported(f"the special register {name}")
    asm.emit("special", d=slot, imm=number, fl=int(wide))


def address(asm: Assembler, operand: Operand, space: str) -> tuple[int, int]:
    """Slot and offset of an [address]. Shared addresses are 32 bits wide, the others 64."""
    if not isinstance(operand, Address):
        raise unsupported(f"the address {operand!r}")
    narrow = space == "shared"
    base = operand.base
    if isinstance(base, Register):
        slot = asm.frame.registers[base]
        if base.wide == (not narrow):
            return slot, operand.offset
        scratch = asm.frame.scratch()
        name = "saturate.u32" if narrow else "extend.u64"
        form_record(asm, internal()[name], scratch, [slot])
        return scratch, operand.offset
    if base is None:
        return asm.frame.constant(0, not narrow), operand.offset
    variable = asm.variable(base)
    if variable is not None and variable.space == "local":
        return source(asm, base, "u64"), operand.offset
    if narrow:
        return asm.frame.constant(0, False), asm.address_of(base) + operand.offset
    value = asm.address_of(base)
    if space == "" and variable is not None and variable.space == "shared":
        value += BASE_SHARED
    return asm.frame.constant(value, True), operand.offset
