"""A launch plan as JSON and bytes: how it goes to a device process, and to the profiler's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coding_framework.cuda.plan.launch_plan import (
    Alloc,
    Copy,
    Fill,
    Free,
    Launch,
    Layout,
    PlanOp,
    ReadBack,
    Upload,
)


def ops_as_data(ops: Sequence[PlanOp]) -> tuple[list[list[Any]], bytes]:
    """Operations as lists, and one block of bytes for everything that they carry."""
    rows: list[list[Any]] = []
    blob = bytearray()
    for op in ops:
        match op:
            case Alloc():
                rows.append(["alloc", op.address, op.nbytes])
            case Free():
                rows.append(["free", op.address, op.poisoned])
            case Upload():
                rows.append(["upload", op.address, len(blob), len(op.data)])
                blob += op.data
            case Copy():
                rows.append(["copy", op.destination, op.source, op.nbytes, op.layout])
            case Fill():
                rows.append(["fill", op.address, op.value, op.nbytes])
            case ReadBack():
                rows.append(["read_back", op.address, op.nbytes])
            case Launch():
                rows.append(
                    ["launch", op.kernel, op.grid, op.block, op.shared_bytes,
                     len(blob), len(op.params), op.stream, op.cooperative]
                )  # fmt: skip
                blob += op.params
    return rows, bytes(blob)


def ops_from_data(rows: Sequence[Sequence[Any]], blob: bytes | memoryview) -> tuple[PlanOp, ...]:
    """The inverse of `ops_as_data`. Raises ValueError for what it would never have made."""
    return tuple(_op(row, memoryview(blob)) for row in rows)


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


def layout_of(itemsize: int, shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """A layout that came as lists."""
    return itemsize, tuple(shape), tuple(strides)


def _moved_words(params: bytes, place: Callable[[int], int]) -> bytes:
    data = bytearray(params)
    for i in range(0, len(data) - 7, 8):
        word = int.from_bytes(data[i : i + 8], "little")
        data[i : i + 8] = place(word).to_bytes(8, "little")
    return bytes(data)


def _op(row: Sequence[Any], blob: memoryview) -> PlanOp:
    match list(row):
        case ["alloc", address, nbytes]:
            return Alloc(address, nbytes)
        case ["free", address, poisoned]:
            return Free(address, poisoned)
        case ["upload", address, start, size]:
            return Upload(address, bytes(blob[start : start + size]))
        case ["copy", destination, source, nbytes, layout]:
            return Copy(destination, source, nbytes, layout and layout_of(*layout))
        case ["fill", address, value, nbytes]:
            return Fill(address, value, nbytes)
        case ["read_back", address, nbytes]:
            return ReadBack(address, nbytes)
        case ["launch", kernel, grid, block, shared, start, size, stream, cooperative]:
            params = bytes(blob[start : start + size])
            return Launch(
                kernel, tuple(grid), tuple(block), shared, params, stream, bool(cooperative)
            )
    raise ValueError(f"unknown plan operation {row!r}")
