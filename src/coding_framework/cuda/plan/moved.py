"""A launch plan where some of its memory lies elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from coding_framework.cuda.plan.launch_plan import Copy, Launch, PlanOp


def moved_ops(ops: Sequence[PlanOp], moved: Mapping[tuple[int, int], int]) -> tuple[PlanOp, ...]:
    """The plan where some memory lies elsewhere: (address, nbytes) of a region then to its address
    now. Eight-byte words of launch parameters that point into such a region are pointers."""
    place = moves(moved)

    def move(op: PlanOp) -> PlanOp:
        match op:
            case Launch():
                return replace(op, params=_moved_words(op.params, place))
            case Copy():
                return replace(op, destination=place(op.destination), source=place(op.source))
            case _:
                return replace(op, address=place(op.address))

    same = all(start == now for (start, _), now in moved.items())
    return tuple(ops) if same else tuple(move(op) for op in ops)


def moves(moved: Mapping[tuple[int, int], int]) -> Callable[[int], int]:
    """Where an address is now, given (address, nbytes) of regions then and their addresses now."""
    changes = [(start, size, now) for (start, size), now in moved.items() if now != start]

    def place(address: int) -> int:
        for start, size, now in changes:
            if start <= address < start + size:
                return now + address - start
        return address

    return place


def _moved_words(params: bytes, place: Callable[[int], int]) -> bytes:
    data = bytearray(params)
    for i in range(0, len(data) - 7, 8):
        word = int.from_bytes(data[i : i + 8], "little")
        data[i : i + 8] = place(word).to_bytes(8, "little")
    return bytes(data)
