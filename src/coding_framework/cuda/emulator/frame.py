"""Where a function's registers, constants and parameters lie in a warp's frame.

Offsets are bytes from the frame's start: mask, carry flag, sink, scratch slots, parameters,
registers, constants. A slot has 32 lanes of 32 bits (128 bytes) or of 64 (256 bytes).
"""

from __future__ import annotations

import struct

from coding_framework.cuda.emulator.program import Address as AddressOperand
from coding_framework.cuda.emulator.program import (
    Function,
    Negated,
    Operand,
    Pair,
    Register,
    Variable,
    Vector,
    too_large,
    unsupported,
)

SINK = 256
_FIRST_SCRATCH = 512
SCRATCH_SLOTS = 12
MAX_FRAME_BYTES = 4 << 20
"""More registers than this are refused: 16,000 of 64 bits, where a GPU has 255 of 32."""


class Frame:
    """Slots of one function. `place` may be called until `finish`."""

    def __init__(self, function: Function) -> None:
        self.registers: dict[Register, int] = {}
        self.parameters: dict[Variable, int] = {}
        self.constants: dict[tuple[int, bool], int] = {}
        self._constant_data: list[bytes] = []
        self._constant_bytes = 0
        self._next = _FIRST_SCRATCH + SCRATCH_SLOTS * 256
        self._scratch = 0
        formals = () if function.is_entry else (*function.parameters, *function.results)
        for variable in (*formals, *(v for v in function.variables if v.space == "param")):
            self.parameters[variable] = self._next
            self._next += max((variable.nbytes + 3) // 4, 1) * 128 + 128
            self._check()
        for instruction in function.instructions:
            for operand in (instruction.guard, *instruction.operands):
                if operand is not None:
                    self._collect(operand)
            if instruction.call and isinstance(instruction.call.callee, Register):
                self._collect(instruction.call.callee)
        self.constants_at = self._next

    def _collect(self, operand: Operand) -> None:
        if isinstance(operand, Register):
            if operand not in self.registers:
                self.registers[operand] = self._next
                self._next += 256 if operand.wide else 128
                self._check()
        elif isinstance(operand, AddressOperand):
            if isinstance(operand.base, Register):
                self._collect(operand.base)
        elif isinstance(operand, Negated):
            self._collect(operand.register)
        elif isinstance(operand, Pair):
            self._collect(operand.first)
            self._collect(operand.second)
        elif isinstance(operand, Vector):
            for item in operand.items:
                self._collect(item)

    def _check(self) -> None:
        if self._next + self._constant_bytes > MAX_FRAME_BYTES:
            raise too_large(f"a function with more than {MAX_FRAME_BYTES >> 20} MiB of registers")

    def constant(self, bits: int, wide: bool) -> int:
        """Slot with `bits` in every lane."""
        bits &= (1 << (64 if wide else 32)) - 1
        at = self.constants.get((bits, wide))
        if at is None:
            at = self.constants[bits, wide] = self.constants_at + self._constant_bytes
            data = struct.pack("<Q" if wide else "<I", bits) * 32
            self._constant_data.append(data)
            self._constant_bytes += len(data)
            self._check()
        return at

    def scratch(self) -> int:
        """A wide slot that holds until the next instruction."""
        if self._scratch >= SCRATCH_SLOTS:
            raise unsupported("an instruction with so many operands of another width")
        at = _FIRST_SCRATCH + self._scratch * 256
        self._scratch += 1
        return at

    def new_instruction(self) -> None:
        """Frees the scratch slots."""
        self._scratch = 0

    @property
    def constant_data(self) -> bytes:
        return b"".join(self._constant_data)

    @property
    def nbytes(self) -> int:
        return (self.constants_at + self._constant_bytes + 127) // 128 * 128
