"""What warps and blocks do together, and calls, as records of the interpreter."""

from __future__ import annotations

from coding_framework.cuda.emulator.assembler import Assembler
from coding_framework.cuda.emulator.frame import SINK
from coding_framework.cuda.emulator.operands import matched, refuse, source
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
    pattern = r"(?:bar|barrier)(?:\.cta)?\.(warp\.sync|sync|arrive|red\.(popc|and|or))"
    pattern += r"(?:\.aligned)?(?:\.u32|\.pred)?"
    what, reduction = matched(instruction, pattern, 1, 2, 3, 4).groups()
    operands = instruction.operands
    if what == "warp.sync":
        asm.emit("warp_sync", c=source(asm, operands[0], "u32"))
    elif (reduction is None) != (len(operands) <= 2):
        raise refuse(instruction)
    elif reduction is None:
        a, b = [*(source(asm, operand, "u32") for operand in operands), 0][:2]
        asm.emit("barrier" if what == "sync" else "arrive", a=a, b=b)
    else:
        a = source(asm, operands[1], "u32")
        b = source(asm, operands[2], "u32") if len(operands) == 4 else 0
        slot, negated = _predicate(asm, operands[-1])
        kind = ("popc", "and", "or").index(reduction)
        asm.emit("barrier", d=_slot_of(asm, operands[0]), a=a, b=b, c=kind,
                 imm=slot | int(negated) << 32)  # fmt: skip


def lower_fence(asm: Assembler, instruction: Instruction) -> None:
    allowed = r"\.(?:gl|cta|sys|gpu|cluster|sc|acq_rel|acquire|release)"
    matched(instruction, rf"(?:membar|fence)(?:{allowed})+")
    if "cta" not in instruction.parts:
        asm.emit("fence")


def lower_shuffle(asm: Assembler, instruction: Instruction) -> None:
    (mode,) = matched(instruction, r"shfl\.sync\.(up|down|bfly|idx)\.b32", 5).groups()
    d, p = _pair(asm, instruction.operands[0])
    a, b, c, members = (source(asm, o, "u32") for o in instruction.operands[1:])
    number = ("up", "down", "bfly", "idx").index(mode)
    asm.emit("shuffle", fl=number, d=d, a=a, b=b, c=c, imm=p | members << 32)


def lower_vote(asm: Assembler, instruction: Instruction) -> None:
    (mode,) = matched(instruction, r"vote\.sync\.(all|any|uni|ballot)\.(?:pred|b32)", 3).groups()
    slot, negated = _predicate(asm, instruction.operands[1])
    members = source(asm, instruction.operands[2], "u32")
    number = ("all", "any", "uni", "ballot").index(mode)
    asm.emit("vote", fl=number, d=_slot_of(asm, instruction.operands[0]), a=slot, c=members,
             imm=int(negated))  # fmt: skip


def lower_active_mask(asm: Assembler, instruction: Instruction) -> None:
    asm.emit("vote", fl=4, d=_slot_of(asm, instruction.operands[0]))


def lower_match(asm: Assembler, instruction: Instruction) -> None:
    which, kind = matched(instruction, r"match\.(any|all)\.sync\.(b32|b64)", 3).groups()
    d, p = _pair(asm, instruction.operands[0])
    wide = kind == "b64"
    value = source(asm, instruction.operands[1], "u64" if wide else "u32")
    members = source(asm, instruction.operands[2], "u32")
    asm.emit("match", fl=int(which == "all") | int(wide) << 1, d=d, a=value, c=members, imm=p)


def lower_redux(asm: Assembler, instruction: Instruction) -> None:
    pattern = r"redux\.sync\.(add|min|max|and|or|xor)\.(u32|s32|b32)"
    what, kind = matched(instruction, pattern, 3).groups()
    a, members = (source(asm, o, "u32") for o in instruction.operands[1:])
    number = ("add", "min", "max", "and", "or", "xor").index(what)
    asm.emit("reduce", fl=number | (8 if kind == "s32" else 0),
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
