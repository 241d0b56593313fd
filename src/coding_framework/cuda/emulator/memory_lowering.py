"""ld, st, atom, red and cp.async as records of the interpreter."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.cuda.emulator.assembler import Assembler
from coding_framework.cuda.emulator.forms import internal
from coding_framework.cuda.emulator.frame import SINK
from coding_framework.cuda.emulator.operands import (
    SPACES,
    address,
    form_record,
    matched,
    refuse,
    source,
)
from coding_framework.cuda.emulator.program import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    Symbol,
    Vector,
    unsupported,
)

_ORDERING = {
    "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "gpu", "sys",
    "cluster", "sc", "seq_cst",
}  # fmt: skip
_CACHING = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"}
_STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "sc", "cg", "cv"}
"""What other blocks may wait by: the model's strong accesses, and those past the first cache."""
_RELEASE = {"release", "acq_rel", "sc"}


class _Access:
    """The modifiers of ld, st, atom and red, taken apart."""

    def __init__(self, instruction: Instruction) -> None:
        self.space, self.count, self.kind = "", 1, ""
        self.hinted = False
        self.strong = self.release = False
        self.rest: list[str] = []
        for part in instruction.parts[1:]:
            if part in _ORDERING or part in _CACHING or part.startswith("L1::"):
                self.strong |= part in _STRONG
                self.release |= part in _RELEASE
                continue
            if part.startswith("L2::"):
                self.hinted |= part == "L2::cache_hint"
            elif part in SPACES or part in ("shared::cta", "param::entry", "param::func"):
                self.space = part.split("::")[0]
            elif part in ("v2", "v4", "v8"):
                self.count = int(part[1:])
            elif part in TYPE_BYTES and part != "pred":
                self.kind = part
            else:
                self.rest.append(part)
        if not self.kind or TYPE_BYTES[self.kind] > 8 or TYPE_BYTES[self.kind] * self.count > 32:
            raise refuse(instruction)
        self.size = TYPE_BYTES[self.kind]

    @property
    def flags(self) -> int:
        """Count, size, sign and space, as memory.c reads them."""
        bits = self.count.bit_length() - 1 | (self.size.bit_length() - 1) << 2
        signed = self.kind in ("s8", "s16")
        strength = self.strong << 8 | self.release << 9
        return bits | signed << 4 | SPACES[self.space] << 5 | strength


def _items(operand: Operand, count: int, instruction: Instruction) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise refuse(instruction)
    return items


def lower_load(asm: Assembler, instruction: Instruction) -> None:
    access = _Access(instruction)
    operands = instruction.operands[: -1 if access.hinted else None]
    if access.rest or len(operands) != 2:
        raise refuse(instruction)
    items = _items(operands[0], access.count, instruction)
    operation, at, offset = _place(asm, access, operands[1], store=False)
    slots, after = _targets(asm, items, access.size == 8, access.kind[0] == "s")
    fields = {"fl": access.flags, "d": slots[0], "a": at, "imm": offset}
    asm.emit(operation, **fields)
    if access.count > 1:
        asm.emit_words(slots + [0] * (8 - len(slots)))
    for emit in after:
        emit()


def _targets(
    asm: Assembler, items: tuple[Operand, ...], wide: bool, signed: bool
) -> tuple[list[int], list[Callable[[], None]]]:
    """Slots to write and what is to be done after writing them."""
    slots: list[int] = []
    after: list[Callable[[], None]] = []
    for item in items:
        if isinstance(item, Sink):
            slots.append(SINK)
            continue
        if not isinstance(item, Register):
            raise unsupported(f"the destination {item!r}")
        slot = asm.frame.registers[item]
        if item.wide == wide:
            slots.append(slot)
            continue
        if wide:
            raise unsupported("a 64-bit load into a 32-bit register")
        scratch = asm.frame.scratch()
        slots.append(scratch)
        form = internal()["extend.s64" if signed else "extend.u64"]
        after.append(lambda f=form, d=slot, s=scratch: form_record(asm, f, d, [s]))  # type: ignore[misc]
    return slots, after


def _place(
    asm: Assembler, access: _Access, operand: Operand, *, store: bool
) -> tuple[str, int, int]:
    """Operation, address slot and offset of a load or store."""
    if access.space == "param" and isinstance(operand, Address):
        base = operand.base
        if isinstance(base, Symbol) and base.variable is not None:
            return _param_place(asm, access, base, operand.offset, store)
    suffix = "store" if store else "load"
    at, offset = address(asm, operand, access.space)
    prefix = {"shared": "shared_", "local": "local_"}.get(access.space, "")
    if store and access.space in ("const", "param"):
        raise unsupported(f"st.{access.space} through a register")
    return prefix + suffix, at, offset


def _param_place(
    asm: Assembler, access: _Access, base: Symbol, offset: int, store: bool
) -> tuple[str, int, int]:
    variable = base.variable
    assert variable is not None
    offset += base.offset
    if offset < 0 or offset + access.size * access.count > variable.nbytes or offset % access.size:
        raise unsupported(f"an access outside the parameter {variable.name!r}")
    if variable in asm.frame.parameters:
        return f"frame_{'store' if store else 'load'}", asm.frame.parameters[variable], offset
    if store or variable not in asm.kernel_params:
        raise unsupported(f"an access to the parameter {variable.name!r}")
    return "param", 0, asm.kernel_params[variable] + offset


def lower_store(asm: Assembler, instruction: Instruction) -> None:
    access = _Access(instruction)
    operands = instruction.operands[: -1 if access.hinted else None]
    if access.rest or len(operands) != 2:
        raise refuse(instruction)
    items = _items(operands[1], access.count, instruction)
    kind = "u64" if access.size == 8 else _value_type(access.kind)
    slots = [source(asm, item, kind) for item in items]
    operation, at, offset = _place(asm, access, operands[0], store=True)
    asm.emit(operation, fl=access.flags, d=slots[0], a=at, imm=offset)
    if access.count > 1:
        asm.emit_words(slots + [0] * (8 - len(slots)))


def _value_type(kind: str) -> str:
    return kind if kind == "f32" else "u32"


_ATOMIC_OPS = ("add", "min", "max", "inc", "dec", "exch", "cas", "and", "or", "xor")
_ATOMIC_TYPES = {
    "add": "u32 s32 u64 f32 f64 f16 f16x2 bf16 bf16x2",
    "min": "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2",
    "max": "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2",
    "inc": "u32", "dec": "u32", "exch": "b32 b64", "cas": "b16 b32 b64",
    "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64",
}  # fmt: skip
_ATOMIC_KIND = {
    "f32": 2,
    "f64": 2,
    "f16x2": 3,
    "bf16x2": 4,
    "f16": 5,
    "bf16": 6,
    "s32": 1,
    "s64": 1,
}


def lower_atomic(asm: Assembler, instruction: Instruction) -> None:
    access = _Access(instruction)
    rest = [r for r in access.rest if r != "noftz"]
    operands = list(instruction.operands[: -1 if access.hinted else None])
    if instruction.parts[0] == "red":
        operands.insert(0, Sink())
    operation = rest[0] if len(rest) == 1 else ""
    expected = 4 if operation == "cas" else 3
    if (
        access.kind not in _ATOMIC_TYPES.get(operation, "").split()
        or access.space not in ("", "global", "shared")
        or len(operands) != expected
        or (access.count > 1 and (access.kind not in ("f32", "f16", "bf16", "f16x2", "bf16x2")
                                  or access.count > 4))
    ):  # fmt: skip
        raise refuse(instruction)
    wide = access.size == 8
    kind = "f64" if access.kind == "f64" else "u64" if wide else _value_type(access.kind)
    results = (
        [Sink()] * access.count
        if isinstance(operands[0], Sink)
        else _items(operands[0], access.count, instruction)
    )
    slots, after = _targets(asm, tuple(results), wide, False)
    values = [source(asm, o, kind) for o in _items(operands[2], access.count, instruction)]
    at, offset = address(asm, operands[1], access.space)
    code = _ATOMIC_OPS.index(operation) | _ATOMIC_KIND.get(access.kind, 0) << 8
    asm.emit("atomic", fl=access.flags, d=slots[0], a=at, b=values[0], c=code, imm=offset)
    if access.count > 1:
        asm.emit_words((slots + [0] * 4)[:4] + (values + [0] * 4)[:4])
    else:
        asm.emit_words([source(asm, operands[3], kind) if operation == "cas" else 0] + [0] * 7)
    for emit in after:
        emit()


def lower_copy(asm: Assembler, instruction: Instruction) -> None:
    """cp.async, and the groups of such copies."""
    if instruction.parts[1:2] == ["async"] and instruction.parts[-1] in _GROUPS:
        _async_group(asm, instruction)
        return
    matched(instruction, r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::\w+)*")
    operands = instruction.operands[: -1 if "L2::cache_hint" in instruction.parts else None]
    size = operands[2] if len(operands) > 2 else None
    if not isinstance(size, Immediate) or size.bits not in (4, 8, 16):
        raise refuse(instruction)
    if len(operands) > 3 and isinstance(operands[3], Register) and operands[3].type == "pred":
        raise unsupported(f"{instruction.opcode} with ignore-src")
    limit = source(asm, operands[3], "u32") if len(operands) > 3 else 0
    to, to_offset = address(asm, operands[0], "shared")
    at, at_offset = address(asm, operands[1], "global")
    asm.emit("async_copy", a=to, b=at, c=size.bits, imm=to_offset)
    low, high = at_offset & 0xFFFFFFFF, at_offset >> 32 & 0xFFFFFFFF
    asm.emit_words([low, high, limit, 0, 0, 0, 0, 0])


_GROUPS = ("commit_group", "wait_group", "wait_all")


def _async_group(asm: Assembler, instruction: Instruction) -> None:
    """Commit the copies so far as a group, or wait for all groups but the latest `imm`."""
    (what,) = matched(instruction, rf"cp\.async\.({'|'.join(_GROUPS)})").groups()
    operands = instruction.operands
    count = operands[0] if operands else Immediate(0)
    counted = isinstance(count, Immediate) and 0 <= count.bits < 1 << 31
    if (
        len(operands) != int(what == "wait_group")
        or not isinstance(count, Immediate)
        or not counted
    ):
        raise refuse(instruction)
    asm.emit("async_group", fl=_GROUPS.index(what), imm=count.bits)
