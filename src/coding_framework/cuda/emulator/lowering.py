"""What one PTX instruction becomes: interpreter records, by opcode and strictly by modifiers."""

from __future__ import annotations

import struct
from collections.abc import Callable

from coding_framework.cuda.emulator.assembler import (
    BASE_GLOBAL,
    BASE_LOCAL,
    BASE_PARAM,
    BASE_SHARED,
    Assembler,
)
from coding_framework.cuda.emulator.codegen import hot_forms, rare_forms
from coding_framework.cuda.emulator.frame import SINK
from coding_framework.cuda.emulator.program import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
    unsupported,
)
from coding_framework.cuda.emulator.semantics import INTERNAL, SIZE, Form, form_of

_AXES = {"x": 0, "y": 1, "z": 2}
SPECIAL_REGISTERS = {
    "%warpid": 12, "%nwarpid": 13, "%smid": 14, "%nsmid": 15, "%dynamic_smem_size": 16,
    "%total_smem_size": 17, "%envreg1": 18, "%envreg2": 19, "%laneid": 20, "%lanemask_eq": 21,
    "%lanemask_le": 22, "%lanemask_lt": 23, "%lanemask_ge": 24, "%lanemask_gt": 25,
    "%clock": 26, "%clock_hi": 27, "%clock64": 28, "%globaltimer": 28, "%globaltimer_lo": 26,
    "%globaltimer_hi": 27, "%gridid": 29,
}  # fmt: skip
_WIDE_SPECIALS = {"%clock64", "%globaltimer", "%gridid"}
_ORDERING = {
    "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "gpu", "sys",
    "cluster", "sc", "seq_cst",
}  # fmt: skip
_CACHING = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"}
SPACES = {"global": 0, "shared": 1, "local": 2, "const": 3, "param": 4, "": 5}


def lower(asm: Assembler, instruction: Instruction) -> None:
    """Emit the records of `instruction`. Raises CandidateFault(unsupported) with its name."""
    head = instruction.parts[0]
    special = _LOWERERS.get(head)
    if special is not None:
        special(asm, instruction)
        return
    form = form_of(instruction.opcode)
    if form is None or len(instruction.operands) != len(form.src) + 1:
        raise _refuse(instruction)
    emit_form(asm, form, instruction.operands[0], instruction.operands[1:])


def _refuse(instruction: Instruction) -> Exception:
    where = f" (line {instruction.line})" if instruction.line else ""
    return unsupported(f"the instruction {instruction.opcode}{where}")


# --- operands -------------------------------------------------------------------------------------


def emit_form(asm: Assembler, form: Form, target: Operand, operands: tuple[Operand, ...]) -> None:
    """One arithmetic record, with conversions where a register is wider than the type."""
    sources = [source(asm, o, kind) for o, kind in zip(operands, form.src, strict=True)]
    wide = SIZE[form.dst] == 8
    with_slot(asm, target, wide, form.dst[0] == "i", lambda d: _form_record(asm, form, d, sources))


def _form_record(asm: Assembler, form: Form, d: int, sources: list[int]) -> None:
    number = hot_forms().get(form)
    if number is not None:
        asm.emit_form(number, False, d, sources)
        return
    number = rare_forms().get(form)
    if number is None:
        raise AssertionError(f"a form without a handler: {form}")
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
        _form_record(asm, INTERNAL["extend.s64" if signed else "extend.u64"], slot, [scratch])
    else:
        _form_record(asm, INTERNAL["low.b64"], slot, [scratch])


def source(asm: Assembler, operand: Operand, kind: str) -> int:
    """Slot that holds `operand` as C type `kind`."""
    wide = SIZE[kind] == 8
    if isinstance(operand, Register):
        slot = asm.frame.registers[operand]
        if operand.wide == wide:
            return slot
        scratch = asm.frame.scratch()
        name = "low.b64" if operand.wide else ("extend.s64" if kind == "i64" else "extend.u64")
        _form_record(asm, INTERNAL[name], scratch, [slot])
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
                _form_record(asm, INTERNAL["low.b64"], narrow, [scratch])
                return narrow
            return scratch
        return asm.frame.constant(asm.address_of(operand), wide)
    if isinstance(operand, Negated):
        scratch = asm.frame.scratch()
        _form_record(asm, _form("not.pred"), scratch, [asm.frame.registers[operand.register]])
        return scratch
    raise unsupported(f"the operand {operand!r}")


def _form(opcode: str) -> Form:
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
        _form_record(asm, INTERNAL[name], scratch, [slot])
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


# --- loads and stores -----------------------------------------------------------------------------


class _Access:
    """The modifiers of ld, st, atom and red, taken apart."""

    def __init__(self, instruction: Instruction) -> None:
        self.space, self.count, self.kind = "", 1, ""
        self.hinted = False
        self.rest: list[str] = []
        for part in instruction.parts[1:]:
            if part in _ORDERING or part in _CACHING or part.startswith("L1::"):
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
            raise _refuse(instruction)
        self.size = TYPE_BYTES[self.kind]

    @property
    def flags(self) -> int:
        """Count, size, sign and space, as memory.c reads them."""
        bits = self.count.bit_length() - 1 | (self.size.bit_length() - 1) << 2
        signed = self.kind in ("s8", "s16")
        return bits | signed << 4 | SPACES[self.space] << 5


def _items(operand: Operand, count: int, instruction: Instruction) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise _refuse(instruction)
    return items


def _load(asm: Assembler, instruction: Instruction) -> None:
    access = _Access(instruction)
    operands = instruction.operands[: -1 if access.hinted else None]
    if access.rest or len(operands) != 2:
        raise _refuse(instruction)
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
        form = INTERNAL["extend.s64" if signed else "extend.u64"]
        after.append(lambda f=form, d=slot, s=scratch: _form_record(asm, f, d, [s]))  # type: ignore[misc]
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


def _store(asm: Assembler, instruction: Instruction) -> None:
    access = _Access(instruction)
    operands = instruction.operands[: -1 if access.hinted else None]
    if access.rest or len(operands) != 2:
        raise _refuse(instruction)
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


def _atomic(asm: Assembler, instruction: Instruction) -> None:
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
        raise _refuse(instruction)
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


# --- moves ----------------------------------------------------------------------------------------


def _move(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    if len(instruction.operands) != 2 or len(parts) != 2 or parts[1] not in TYPE_BYTES:
        raise _refuse(instruction)
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
            raise _refuse(instruction)
        if isinstance(value, Immediate) and kind in ("f32", "f64"):
            value = Immediate(immediate_bits(value, kind))
        emit_form(asm, form, target, (value,))


def _pack(
    asm: Assembler, instruction: Instruction, kind: str, target: Operand, value: Vector
) -> None:
    bits = TYPE_BYTES[kind] * 8 // max(len(value.items), 1)
    slots = [source(asm, item, "u32") for item in value.items]
    if (TYPE_BYTES[kind] * 8, len(slots)) not in ((64, 2), (64, 4), (32, 2), (32, 4), (16, 2)):
        raise _refuse(instruction)

    def combine(name: str, pair: list[int]) -> int:
        scratch = asm.frame.scratch()
        _form_record(asm, INTERNAL[name], scratch, pair)
        return scratch

    if bits == 8 and len(slots) == 4:
        slots = [combine("pack.b16", slots[:2]), combine("pack.b16", slots[2:])]
    elif bits == 16 and len(slots) == 4:
        slots = [combine("pack.b32", slots[:2]), combine("pack.b32", slots[2:])]
    name = {64: "pack.b64", 32: "pack.b32", 16: "pack.b16"}[TYPE_BYTES[kind] * 8]
    wide = TYPE_BYTES[kind] == 8
    with_slot(asm, target, wide, False, lambda d: _form_record(asm, INTERNAL[name], d, slots))


def _unpack(
    asm: Assembler, instruction: Instruction, kind: str, target: Vector, value: Operand
) -> None:
    size = TYPE_BYTES[kind] * 8
    count = len(target.items)
    if (size, count) not in ((64, 2), (64, 4), (32, 2), (32, 4), (16, 2)):
        raise _refuse(instruction)

    def split(slot: int, name: str) -> list[int]:
        low, high = asm.frame.scratch(), asm.frame.scratch()
        _form_record(asm, INTERNAL[f"low.{name}"], low, [slot])
        _form_record(asm, INTERNAL[f"high.{name}"], high, [slot])
        return [low, high]

    slot = source(asm, value, "u64" if size == 64 else "u32")
    parts = split(slot, f"b{size}")
    if count == 4:
        parts = [p for half in parts for p in split(half, f"b{size // 2}")]
    for item, part in zip(target.items, parts, strict=True):
        if not isinstance(item, Sink):
            form = _form("mov.b32")
            with_slot(asm, item, False, False,
                      lambda d, p=part, f=form: _form_record(asm, f, d, [p]))  # type: ignore[misc]  # fmt: skip


def _cvta(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    back = "to" in parts
    spaces = [p.split("::")[0] for p in parts[1:-1] if p != "to"]
    windows = {
        "global": 0,
        "const": 0,
        "shared": BASE_SHARED,
        "local": BASE_LOCAL,
        "param": BASE_PARAM,
    }
    if parts[-1] != "u64" or len(spaces) != 1 or spaces[0] not in windows:
        raise _refuse(instruction)
    target, value = instruction.operands
    window = windows[spaces[0]]
    if not window:
        emit_form(asm, _form("mov.b64"), target, (value,))
        return
    emit_form(asm, INTERNAL["add.base"], target, (value, Immediate(-window if back else window)))


def _isspacep(asm: Assembler, instruction: Instruction) -> None:
    target, value = instruction.operands
    space = instruction.parts[1].split("::")[0]
    windows = {"global": BASE_GLOBAL, "shared": BASE_SHARED, "local": BASE_LOCAL, "const": 0,
               "param": BASE_PARAM}  # fmt: skip
    if space not in windows or instruction.parts[1] == "shared::cluster":
        raise _refuse(instruction)
    emit_form(asm, INTERNAL["isspacep"], target, (value, Immediate(windows[space])))


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
        raise _refuse(instruction)
    target = operands[0]
    pair = target if isinstance(target, Pair) else None
    if not join and pair is None:
        emit_form(asm, form, target, operands[1:3])
        return
    test = asm.frame.scratch()
    sources = [source(asm, o, k) for o, k in zip(operands[1:3], form.src, strict=True)]
    _form_record(asm, form, test, sources)
    _join(asm, pair.first if pair else target, test, join, operands)
    if pair:
        inverse = asm.frame.scratch()
        _form_record(asm, _form("not.pred"), inverse, [test])
        _join(asm, pair.second, inverse, join, operands)


def _join(
    asm: Assembler, target: Operand, test: int, join: str, operands: tuple[Operand, ...]
) -> None:
    form, sources = _form("mov.b32"), [test]
    if join:
        form, sources = _form(f"{join}.pred"), [test, source(asm, operands[3], "u32")]
    with_slot(asm, target, False, False, lambda d: _form_record(asm, form, d, sources))


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
        _form_record(asm, INTERNAL[half], x, [a])
        _form_record(asm, INTERNAL[half], y, [b])
        _form_record(asm, form, test, [x, y])
        _join(asm, out, test, join, instruction.operands)
    return True


# --- warps and blocks -----------------------------------------------------------------------------


def _predicate(asm: Assembler, operand: Operand) -> tuple[int, bool]:
    """Slot of a predicate operand and whether it is negated."""
    if isinstance(operand, Negated):
        return asm.frame.registers[operand.register], True
    return source(asm, operand, "u32"), False


def _slot_of(asm: Assembler, operand: Operand) -> int:
    if isinstance(operand, Sink):
        return SINK
    if isinstance(operand, Register) and not operand.wide:
        return asm.frame.registers[operand]
    raise unsupported(f"the destination {operand!r}")


def _pair(asm: Assembler, operand: Operand) -> tuple[int, int]:
    if isinstance(operand, Pair):
        return _slot_of(asm, operand.first), _slot_of(asm, operand.second)
    return _slot_of(asm, operand), 0


def _barrier(asm: Assembler, instruction: Instruction) -> None:
    parts = [p for p in instruction.parts[1:] if p not in ("cta", "aligned")]
    operands = instruction.operands
    if parts == ["warp", "sync"]:
        asm.emit("warp_sync", c=source(asm, operands[0], "u32"))
    elif parts in (["sync"], ["arrive"]) and 1 <= len(operands) <= 2:
        a, b = source(asm, operands[0], "u32"), 0
        if len(operands) == 2:
            b = source(asm, operands[1], "u32")
        asm.emit("barrier" if parts == ["sync"] else "arrive", a=a, b=b)
    elif parts[:1] == ["red"] and parts[1:] in (["popc", "u32"], ["and", "pred"], ["or", "pred"]):
        a = source(asm, operands[1], "u32")
        b = source(asm, operands[2], "u32") if len(operands) == 4 else 0
        slot, negated = _predicate(asm, operands[-1])
        kind = {"popc": 0, "and": 1, "or": 2}[parts[1]]
        asm.emit("barrier", d=_slot_of(asm, operands[0]), a=a, b=b, c=kind,
                 imm=slot | int(negated) << 32)  # fmt: skip
    else:
        raise _refuse(instruction)


def _fence(asm: Assembler, instruction: Instruction) -> None:
    del asm
    allowed = {"gl", "cta", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release"}
    if not set(instruction.parts[1:]) <= allowed:
        raise _refuse(instruction)


def _shuffle(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    modes = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
    if len(parts) != 4 or parts[1] != "sync" or parts[2] not in modes or parts[3] != "b32":
        raise _refuse(instruction)
    d, p = _pair(asm, instruction.operands[0])
    if len(instruction.operands) != 5:
        raise _refuse(instruction)
    a, b, c, members = (source(asm, o, "u32") for o in instruction.operands[1:5])
    asm.emit("shuffle", fl=modes[parts[2]], d=d, a=a, b=b, c=c, imm=p | members << 32)


def _vote(asm: Assembler, instruction: Instruction) -> None:
    modes = {"all": 0, "any": 1, "uni": 2, "ballot": 3}
    parts = instruction.parts
    if len(parts) != 4 or parts[1] != "sync" or parts[2] not in modes:
        raise _refuse(instruction)
    slot, negated = _predicate(asm, instruction.operands[1])
    members = source(asm, instruction.operands[2], "u32")
    asm.emit("vote", fl=modes[parts[2]], d=_slot_of(asm, instruction.operands[0]), a=slot,
             c=members, imm=int(negated))  # fmt: skip


def _active_mask(asm: Assembler, instruction: Instruction) -> None:
    asm.emit("vote", fl=4, d=_slot_of(asm, instruction.operands[0]))


def _match(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    if len(parts) != 4 or parts[1] not in ("any", "all") or parts[3] not in ("b32", "b64"):
        raise _refuse(instruction)
    d, p = _pair(asm, instruction.operands[0])
    wide = parts[3] == "b64"
    value = source(asm, instruction.operands[1], "u64" if wide else "u32")
    members = source(asm, instruction.operands[2], "u32")
    asm.emit("match", fl=int(parts[1] == "all") | int(wide) << 1, d=d, a=value, c=members, imm=p)


def _redux(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    ops = {"add": 0, "min": 1, "max": 2, "and": 3, "or": 4, "xor": 5}
    if len(parts) != 4 or parts[2] not in ops or parts[3] not in ("u32", "s32", "b32"):
        raise _refuse(instruction)
    a, members = (source(asm, o, "u32") for o in instruction.operands[1:3])
    asm.emit("reduce", fl=ops[parts[2]] | (8 if parts[3] == "s32" else 0),
             d=_slot_of(asm, instruction.operands[0]), a=a, c=members)  # fmt: skip


def _call(asm: Assembler, instruction: Instruction) -> None:
    call = instruction.call
    assert call is not None
    if isinstance(call.callee, str):
        function = asm.module.functions.get(call.callee)
        if function is None or not function.defined:
            _runtime_call(asm, instruction, call.callee)
            return
        asm.want(call.callee)
    site = asm.call_site(call.arguments, call.results)
    skip = 1 + (len(site) * 4 + 31) // 32
    if isinstance(call.callee, str):
        asm.emit("call", b=asm.numbers[call.callee], c=skip)
    else:
        for name, function in asm.module.functions.items():
            if function.defined and not function.is_entry:
                asm.want(name)
        asm.emit("call", fl=1, a=asm.frame.registers[call.callee], c=skip)
    asm.emit_words(site)


def _runtime_call(asm: Assembler, instruction: Instruction, name: str) -> None:
    """Functions that CUDA's own device runtime would provide."""
    call = instruction.call
    assert call is not None
    if name == "vprintf" and len(call.arguments) == 2 and len(call.results) == 1:
        a, b = (asm.frame.parameters[v] for v in call.arguments)
        asm.emit("printf", d=asm.frame.parameters[call.results[0]], a=a, b=b)
    elif name == "__assertfail":
        asm.emit("trap", fl=8)
    else:
        raise unsupported(f"a call of the device function {name!r}")


def _trap(asm: Assembler, instruction: Instruction) -> None:
    del instruction
    asm.emit("trap")


def _nothing(asm: Assembler, instruction: Instruction) -> None:
    """nanosleep, prefetch and their like: no effect on results."""
    del asm, instruction


def _async_copy(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    if parts[2] in ("commit_group", "wait_group", "wait_all"):
        return
    rest = [p for p in parts[2:] if not p.startswith("L2::")]
    if rest not in (["ca", "shared", "global"], ["cg", "shared", "global"],
                    ["ca", "shared::cta", "global"], ["cg", "shared::cta", "global"]):  # fmt: skip
        raise _refuse(instruction)
    operands = instruction.operands[: -1 if "L2::cache_hint" in parts else None]
    size = operands[2] if len(operands) > 2 else None
    if not isinstance(size, Immediate) or size.bits not in (4, 8, 16):
        raise _refuse(instruction)
    if len(operands) > 3 and isinstance(operands[3], Register) and operands[3].type == "pred":
        raise unsupported(f"{instruction.opcode} with ignore-src")
    limit = source(asm, operands[3], "u32") if len(operands) > 3 else 0
    to, to_offset = address(asm, operands[0], "shared")
    at, at_offset = address(asm, operands[1], "global")
    asm.emit("async_copy", a=to, b=at, c=size.bits, imm=to_offset)
    low, high = at_offset & 0xFFFFFFFF, at_offset >> 32 & 0xFFFFFFFF
    asm.emit_words([low, high, limit, 0, 0, 0, 0, 0])


def _cp(asm: Assembler, instruction: Instruction) -> None:
    if len(instruction.parts) < 3 or instruction.parts[1] != "async":
        raise _refuse(instruction)
    _async_copy(asm, instruction)


_LOWERERS: dict[str, Callable[[Assembler, Instruction], None]] = {
    "ld": _load, "ldu": _load, "st": _store, "atom": _atomic, "red": _atomic, "mov": _move,
    "cvta": _cvta, "isspacep": _isspacep, "setp": _setp, "bar": _barrier, "barrier": _barrier,
    "membar": _fence, "fence": _fence, "shfl": _shuffle, "vote": _vote,
    "activemask": _active_mask, "match": _match, "redux": _redux, "call": _call, "trap": _trap,
    "brkpt": _trap, "nanosleep": _nothing, "prefetch": _nothing, "prefetchu": _nothing, "cp": _cp,
}  # fmt: skip
