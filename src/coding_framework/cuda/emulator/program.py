"""Records of a parsed PTX module. Maker: parser.py. Consumers: control_flow.py, assembler.py.

A name is resolved where it is read: an operand holds the `Register` or `Variable` it means, so
that inner scopes (`{ .reg .b32 t; ... }`) and equal names in different functions cannot mix.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.types import Status

TYPE_BYTES = {
    "pred": 4, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8, "b128": 16,
}  # fmt: skip
"""Bytes of a PTX type in memory (a predicate: of its register slot)."""


def unsupported(what: str) -> CandidateFault:
    """The fault that names a gap of ours."""
    return CandidateFault(Status.UNSUPPORTED, f"the emulator does not support {what}")


def too_large(what: str) -> CandidateFault:
    """The fault of device code that needs more than any device is asked to hold."""
    return CandidateFault(Status.MEMORY_LIMIT, f"the device code has {what}")


@dataclass(slots=True, eq=False)
class Register:
    """One virtual register. `wide`: 64 bits a lane, else a slot of 32 bits."""

    name: str
    type: str

    @property
    def wide(self) -> bool:
        return TYPE_BYTES[self.type] == 8


@dataclass(slots=True, eq=False)
class Variable:
    """A variable of any state space, a formal parameter, or a `.param` of a call."""

    name: str
    space: str
    nbytes: int
    align: int
    element_bytes: int = 1
    initial: tuple[InitialValue, ...] = ()
    external: bool = False
    unsized: bool = False
    """`.extern .shared x[]`: dynamic shared memory."""


@dataclass(frozen=True, slots=True)
class InitialValue:
    """One element of an initialiser: a number, or the address of a symbol plus an offset."""

    bits: int = 0
    symbol: str | None = None


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal. `bits` is a Python int for integers, else the bit pattern of `kind`."""

    bits: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or function, by name where it is at module level."""

    name: str
    variable: Variable | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """[base + offset]; `base` None: an absolute address."""

    base: Register | Symbol | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """{a, b, ...}."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """p|q: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """!p."""

    register: Register


@dataclass(frozen=True, slots=True)
class Sink:
    """The destination `_`."""


Operand = Register | Immediate | Symbol | Special | Address | Vector | Pair | Negated | Sink


@dataclass(frozen=True, slots=True)
class Call:
    """What a call passes. `callee`: a name, or a register with a function's address."""

    callee: str | Register
    arguments: tuple[Variable, ...]
    results: tuple[Variable, ...]


@dataclass(slots=True)
class Instruction:
    """One PTX instruction. `targets`: indices of instructions, for bra and brx.idx."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | None = None
    guard_negated: bool = False
    line: int | None = None
    targets: tuple[int, ...] = ()
    call: Call | None = None

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")


@dataclass(slots=True)
class Function:
    """An `.entry` or a `.func` with its body."""

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...] = ()
    results: tuple[Variable, ...] = ()
    instructions: list[Instruction] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    """`.local`, `.shared` and call-site `.param` variables declared in the body."""
    defined: bool = False
    max_threads: int = 1024


@dataclass(slots=True)
class Module:
    """One PTX file."""

    target: str = ""
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
