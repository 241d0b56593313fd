"""What warps and blocks do together, and calls, as records of the interpreter."""

from __future__ import annotations

from coding_framework.cuda.emulator.assembler import Assembler
from coding_framework.cuda.emulator.frame import SINK
from coding_framework.cuda.emulator.operands import (
    refuse,
    source,
)
from coding_framework.cuda.emulator.program import (
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    unsupported,
)


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


def lower_barrier(asm: Assembler, instruction: Instruction) -> None:
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
        raise refuse(instruction)


def lower_fence(asm: Assembler, instruction: Instruction) -> None:
    allowed = {"gl", "cta", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release"}
    if not set(instruction.parts[1:]) <= allowed:
        raise refuse(instruction)
    if "cta" not in instruction.parts:
        asm.emit("fence")


def lower_shuffle(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    modes = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
    if len(parts) != 4 or parts[1] != "sync" or parts[2] not in modes or parts[3] != "b32":
        raise refuse(instruction)
    d, p = _pair(asm, instruction.operands[0])
    if len(instruction.operands) != 5:
        raise refuse(instruction)
    a, b, c, members = (source(asm, o, "u32") for o in instruction.operands[1:5])
    asm.emit("shuffle", fl=modes[parts[2]], d=d, a=a, b=b, c=c, imm=p | members << 32)


def lower_vote(asm: Assembler, instruction: Instruction) -> None:
    modes = {"all": 0, "any": 1, "uni": 2, "ballot": 3}
    parts = instruction.parts
    if len(parts) != 4 or parts[1] != "sync" or parts[2] not in modes:
        raise refuse(instruction)
    slot, negated = _predicate(asm, instruction.operands[1])
    members = source(asm, instruction.operands[2], "u32")
    asm.emit("vote", fl=modes[parts[2]], d=_slot_of(asm, instruction.operands[0]), a=slot,
             c=members, imm=int(negated))  # fmt: skip


def lower_active_mask(asm: Assembler, instruction: Instruction) -> None:
    asm.emit("vote", fl=4, d=_slot_of(asm, instruction.operands[0]))


def lower_match(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    if len(parts) != 4 or parts[1] not in ("any", "all") or parts[3] not in ("b32", "b64"):
        raise refuse(instruction)
    d, p = _pair(asm, instruction.operands[0])
    wide = parts[3] == "b64"
    value = source(asm, instruction.operands[1], "u64" if wide else "u32")
    members = source(asm, instruction.operands[2], "u32")
    asm.emit("match", fl=int(parts[1] == "all") | int(wide) << 1, d=d, a=value, c=members, imm=p)


def lower_redux(asm: Assembler, instruction: Instruction) -> None:
    parts = instruction.parts
    ops = {"add": 0, "min": 1, "max": 2, "and": 3, "or": 4, "xor": 5}
    if len(parts) != 4 or parts[2] not in ops or parts[3] not in ("u32", "s32", "b32"):
        raise refuse(instruction)
    a, members = (source(asm, o, "u32") for o in instruction.operands[1:3])
    asm.emit("reduce", fl=ops[parts[2]] | (8 if parts[3] == "s32" else 0),
             d=_slot_of(asm, instruction.operands[0]), a=a, c=members)  # fmt: skip


def lower_call(asm: Assembler, instruction: Instruction) -> None:
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
        text = asm.frame.parameters[call.arguments[0]] if call.arguments else 0
        asm.emit("trap", fl=8, a=text)
    else:
        raise unsupported(f"a call of the device function {name!r}")


def lower_trap(asm: Assembler, instruction: Instruction) -> None:
    del instruction
    asm.emit("trap")


def lower_nothing(asm: Assembler, instruction: Instruction) -> None:
    """nanosleep, prefetch and their like: no effect on results."""
    del asm, instruction
