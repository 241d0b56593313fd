"""A kernel and the functions it may call, as bytecode for the interpreter.

Control flow is here; `lowering.py` says what single instructions become. One `Kernel` is made for
each `.entry` when it is first launched, so that what is not supported in a kernel that is never
launched does no harm.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coding_framework.cuda.emulator.codegen import operations
from coding_framework.cuda.emulator.control_flow import (
    EXIT,
    Block,
    ControlFlow,
    analyse,
    only_returns,
)
from coding_framework.cuda.emulator.frame import Frame
from coding_framework.cuda.emulator.program import (
    Function,
    Instruction,
    Module,
    Register,
    Symbol,
    Variable,
    too_large,
    unsupported,
)

NOWHERE = 0xFFFFFFFF
BASE_GLOBAL = 0x7E00_0000_0000
BASE_SHARED = 0x7D00_0000_0000
BASE_LOCAL = 0x7C00_0000_0000
BASE_PARAM = 0x7B00_0000_0000
BASE_CODE = 0x7A00_0000_0000
MAX_INSTRUCTIONS = 1_000_000
CALL_STACK_BYTES = 16 << 10
"""Local memory of a thread for functions it calls, recursion included."""

OP = {name: number for number, name in enumerate(operations())}
_RECORD = struct.Struct("<HHIIIIiq")


@dataclass(slots=True)
class Record:
    """One interpreter instruction (rt.h: In)."""

    op: int
    fl: int = 0
    d: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    pc: int = 0
    imm: int = 0

    def pack(self) -> bytes:
        imm = self.imm & 0xFFFFFFFFFFFFFFFF
        if imm >> 63:
            imm -= 1 << 64
        return _RECORD.pack(self.op, self.fl, self.d, self.a, self.b, self.c, self.pc, imm)


@dataclass(slots=True)
class CodeBlock:
    """A basic block, for counting: which instructions it holds."""

    function: str
    instructions: tuple[int, ...]
    """Numbers into `Kernel.instructions`."""


@dataclass(slots=True)
class FunctionCode:
    """Where a function's code and frame are."""

    name: str
    number: int
    entry: int = 0
    frame: Frame | None = None
    local_bytes: int = 0
    params: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Kernel:
    """A kernel ready to run."""

    name: str
    code: bytes
    functions: list[FunctionCode]
    """By number; functions that the kernel cannot call have no frame."""
    instructions: list[tuple[str, Instruction]]
    """By program counter: the function's name and the instruction."""
    blocks: list[CodeBlock]
    shared_bytes: int
    param_offsets: dict[Variable, int]
    param_bytes: int
    local_bytes: int
    register_bytes: int


def parameter_layout(parameters: tuple[Variable, ...]) -> tuple[dict[Variable, int], int]:
    """Offset of each parameter in the kernel's parameter block, and the block's size."""
    offsets: dict[Variable, int] = {}
    at = 0
    for variable in parameters:
        at = (at + variable.align - 1) // variable.align * variable.align
        offsets[variable] = at
        at += variable.nbytes
    return offsets, at


class Assembler:
    """Assembles one kernel."""

    def __init__(
        self,
        module: Module,
        addresses: Mapping[str, int],
        lower: Callable[[Assembler, Instruction], None],
    ) -> None:
        """addresses: where the module's global and const variables lie. lower: emits the records of
        one instruction (`lowering.lower`)."""
        self.module = module
        self._lower = lower
        self.addresses = addresses
        self.records: list[Record | bytes] = []
        self.instructions: list[tuple[str, Instruction]] = []
        self.blocks: list[CodeBlock] = []
        self.numbers = {name: n for n, name in enumerate(module.functions)}
        self.functions = [FunctionCode(name, n) for name, n in self.numbers.items()]
        self.shared: dict[Variable, int] = {}
        self.local: dict[Variable, int] = {}
        self.wanted: list[str] = []
        self.pc = 0
        self.function: Function
        self.frame: Frame
        self.kernel_params: dict[Variable, int] = {}

    # --- emission -------------------------------------------------------------------------------

    def emit(self, operation: str, **fields: int) -> Record:
        record = Record(OP[operation], pc=self.pc, **fields)
        self.records.append(record)
        return record

    def emit_form(self, number: int, rare: bool, d: int, sources: list[int]) -> None:
        a, b, c, e = [*sources, 0, 0, 0, 0][:4]
        if rare:
            self.records.append(Record(OP["rare"], number, d, a, b, c, self.pc, e))
        else:
            self.records.append(Record(len(OP) + number, 0, d, a, b, c, self.pc, e))

    def emit_words(self, words: list[int]) -> None:
        """Raw words behind a record, in whole records."""
        data = struct.pack(f"<{len(words)}I", *words)
        for start in range(0, len(data), 32):
            self.records.append(data[start : start + 32].ljust(32, b"\0"))

    # --- symbols --------------------------------------------------------------------------------

    def variable(self, symbol: Symbol) -> Variable | None:
        return symbol.variable or self.module.variables.get(symbol.name)

    def address_of(self, symbol: Symbol) -> int:
        """The number that a symbol stands for, outside local memory."""
        variable = self.variable(symbol)
        if variable is None:
            number = self.numbers.get(symbol.name)
            if number is None:
                raise unsupported(f"the unknown name {symbol.name!r}")
            self.want(symbol.name)
            return BASE_CODE + 16 * number
        if variable.space == "shared":
            return self.shared_offset(variable) + symbol.offset
        if variable.space == "param":
            if variable not in self.kernel_params:
                raise unsupported(f"the address of the parameter {symbol.name!r}")
            return self.kernel_params[variable] + symbol.offset
        address = self.addresses.get(variable.name)
        if address is None:
            raise unsupported(f"the address of {symbol.name!r}")
        return address + symbol.offset

    def shared_offset(self, variable: Variable) -> int:
        if variable.unsized:
            return self.shared.get(variable, 0)
        return self.shared[variable]

    def want(self, name: str) -> None:
        """Have the function assembled too."""
        if name not in self.wanted:
            self.wanted.append(name)

    # --- the kernel -----------------------------------------------------------------------------

    def assemble(self, name: str) -> Kernel:
        """The kernel `name`. Raises CandidateFault(unsupported), naming opcode or feature."""
        entry = self.module.functions[name]
        self.kernel_params, param_bytes = parameter_layout(entry.parameters)
        shared_bytes = self.place_shared(entry)
        self.want(name)
        for position in range(1 << 16):
            if position >= len(self.wanted):
                break
            self._assemble_function(self.module.functions[self.wanted[position]])
        reachable = [f for f in self.functions if f.frame is not None]
        root = self.functions[self.numbers[name]]
        callees = [f for f in reachable if f is not root]
        frame = root.frame.nbytes if root.frame else 0
        deepest = max((f.frame.nbytes for f in callees if f.frame), default=0)
        calls = min(32 * deepest, 8 << 20) if callees else 0
        local = root.local_bytes + (CALL_STACK_BYTES if callees else 0)
        return Kernel(
            name=name,
            code=b"".join(r if isinstance(r, bytes) else r.pack() for r in self.records),
            functions=self.functions,
            instructions=self.instructions,
            blocks=self.blocks,
            shared_bytes=shared_bytes,
            param_offsets=self.kernel_params,
            param_bytes=param_bytes,
            local_bytes=(local + 15) // 16 * 16,
            register_bytes=(frame + calls + 127) // 128 * 128,
        )

    def place_shared(self, entry: Function) -> int:
        """Bytes of static shared memory: that comes first, everything declared `.extern` behind."""
        functions = self._callable_from(entry)
        variables = [v for f in functions for v in f.variables if v.space == "shared"]
        variables += [v for v in self.module.variables.values() if v.space == "shared"]
        used = self._shared_symbols(functions)
        at = 0
        for variable in variables:
            if variable.unsized or (variable.name not in used and len(functions) == 1):
                continue
            at = (at + variable.align - 1) // variable.align * variable.align
            self.shared[variable] = at
            at += variable.nbytes
        dynamic = [v for v in variables if v.unsized]
        if any(v.name in used for v in dynamic):
            align = max(16, *(v.align for v in dynamic))
            at = (at + align - 1) // align * align
        for variable in dynamic:
            self.shared[variable] = at
        return at

    def _callable_from(self, entry: Function) -> list[Function]:
        calls = any(i.call for i in entry.instructions)
        others = [f for f in self.module.functions.values() if not f.is_entry and f.defined]
        return [entry, *others] if calls else [entry]

    def _shared_symbols(self, functions: list[Function]) -> set[str]:
        found: set[str] = set()

        def walk(value: object) -> None:
            if isinstance(value, Symbol):
                found.add(value.name)
            else:
                for name in ("base", "items", "first", "second"):
                    inner = getattr(value, name, None)
                    if isinstance(inner, tuple):
                        for item in inner:
                            walk(item)
                    elif inner is not None:
                        walk(inner)

        for function in functions:
            for instruction in function.instructions:
                for operand in instruction.operands:
                    walk(operand)
        return found

    # --- one function ---------------------------------------------------------------------------

    def _assemble_function(self, function: Function) -> None:
        if not function.defined:
            raise unsupported(f"the device function {function.name!r}, which has no body here")
        if len(self.instructions) + len(function.instructions) > MAX_INSTRUCTIONS:
            raise too_large(f"a kernel of more than {MAX_INSTRUCTIONS} instructions")
        self.function = function
        self.frame = Frame(function)
        code = self.functions[self.numbers[function.name]]
        code.frame = self.frame
        self._place_locals(function, code)
        code.params = self._variable_list(function.parameters if not function.is_entry else ())
        code.params += self._variable_list(function.results)
        code.entry = len(self.records)
        self._body(function, analyse(function))

    def _place_locals(self, function: Function, code: FunctionCode) -> None:
        at = 0
        for variable in function.variables:
            if variable.space == "local":
                at = (at + variable.align - 1) // variable.align * variable.align
                self.local[variable] = at
                at += variable.nbytes
        code.local_bytes = (at + 15) // 16 * 16
        if code.local_bytes > 512 << 10:
            raise too_large("more than 512 KiB of local memory a thread")

    def _variable_list(self, variables: tuple[Variable, ...]) -> list[int]:
        words = [len(variables)]
        for variable in variables:
            words += [self.frame.parameters[variable], max((variable.nbytes + 3) // 4, 1)]
        return words

    def call_site(
        self, arguments: tuple[Variable, ...], results: tuple[Variable, ...]
    ) -> list[int]:
        return self._variable_list(arguments) + self._variable_list(results)

    def _body(self, function: Function, flow: ControlFlow) -> None:
        starts: dict[int, int] = {}
        fixes: list[tuple[Record, str, int]] = []
        tables: list[tuple[int, list[int]]] = []
        first_pc = len(self.instructions)
        joins = flow.joins
        for number, block in enumerate(flow.blocks):
            starts[number] = len(self.records)
            members = range(first_pc + block.first, first_pc + block.last)
            self.pc = members.start if members else max(len(self.instructions) - 1, 0)
            self.emit("block", fl=int(number in joins), a=len(self.blocks), b=max(len(members), 1))
            self.blocks.append(CodeBlock(function.name, tuple(members)))
            for instruction in function.instructions[block.first : block.last]:
                self.pc = len(self.instructions)
                self.instructions.append((function.name, instruction))
                self.frame.new_instruction()
                head = instruction.parts[0]
                if head == "bra":
                    self._branch(instruction, flow, block, fixes)
                elif head == "brx":
                    self._branch_table(instruction, flow, block, fixes, tables)
                elif head in ("ret", "exit"):
                    self._leave(head, instruction)
                else:
                    self._guarded(instruction)
        if not self.instructions:
            self.instructions.append((function.name, Instruction("ret", ())))
        self.emit("return")
        end = len(self.records) - 1
        for record, name, block_number in fixes:
            setattr(record, name, end if block_number == EXIT else starts[block_number])
        for position, targets in tables:
            data = struct.pack(
                f"<{len(targets)}I", *(end if t == EXIT else starts[t] for t in targets)
            )
            for start in range(0, len(data), 32):
                self.records[position + start // 32] = data[start : start + 32].ljust(32, b"\0")

    def _guarded(self, instruction: Instruction) -> None:
        if instruction.guard is None:
            self._lower(self, instruction)
            return
        guard = self._guard(instruction)
        self._lower(self, instruction)
        guard.imm = len(self.records)
        self.emit("unguard")

    def _guard(self, instruction: Instruction, *, invert: bool = False) -> Record:
        assert instruction.guard is not None
        slot = self.frame.registers[instruction.guard]
        return self.emit("guard", a=slot, fl=int(instruction.guard_negated != invert))

    def _leave(self, head: str, instruction: Instruction) -> None:
        operation = "exit" if head == "exit" else "return"
        if instruction.guard is None:
            self.emit(operation)
            return
        guard = self._guard(instruction)
        self.emit(operation)
        guard.imm = len(self.records)

    def _branch(
        self,
        instruction: Instruction,
        flow: ControlFlow,
        block: Block,
        fixes: list[tuple[Record, str, int]],
    ) -> None:
        """bra: a return where the target only returns, else a jump or a split."""
        target = flow.block_at.get(instruction.targets[0], EXIT)
        leaves = EXIT in block.successors
        following = flow.block_at.get(block.last, EXIT)
        if instruction.guard is None:
            if leaves:
                self.emit("return")
            else:
                fixes.append((self.emit("branch"), "imm", target))
            return
        code = self.function.instructions
        target_leaves = only_returns(code, instruction.targets[0])
        next_leaves = only_returns(code, block.last)
        if target_leaves or next_leaves:
            if target_leaves and next_leaves:
                self.emit("return")
                return
            guard = self._guard(instruction, invert=next_leaves)
            self.emit("return")
            guard.imm = len(self.records)
            if next_leaves:
                fixes.append((self.emit("branch"), "imm", target))
            return
        slot = self.frame.registers[instruction.guard]
        record = self.emit("branch_if", a=slot, fl=int(instruction.guard_negated), c=NOWHERE)
        record.d = int(
            flow.blocks[target].reaches_barrier and not flow.blocks[following].reaches_barrier
        )
        fixes += [(record, "imm", target), (record, "b", following)]
        if block.join != EXIT:
            fixes.append((record, "c", block.join))

    def _branch_table(
        self,
        instruction: Instruction,
        flow: ControlFlow,
        block: Block,
        fixes: list[tuple[Record, str, int]],
        tables: list[tuple[int, list[int]]],
    ) -> None:
        index = instruction.operands[0]
        if not isinstance(index, Register) or instruction.guard is not None:
            raise unsupported("brx.idx with a guard or without a register")
        targets = [flow.block_at.get(t, EXIT) for t in instruction.targets]
        record = self.emit("branch_table", a=self.frame.registers[index], c=NOWHERE,
                           imm=len(targets))  # fmt: skip
        tables.append((len(self.records), targets))
        self.emit_words([0] * len(targets))
        if block.join != EXIT:
            fixes.append((record, "c", block.join))
