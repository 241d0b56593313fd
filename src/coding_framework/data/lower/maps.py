"""Kernels that make each element by itself, faster than by one thread an element: four neighbours a
thread, and tiles in shared memory where what is read lies across what is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coding_framework.data.graph import Node
from coding_framework.data.lower.naive import Memory, Value
from coding_framework.data.lower.text import C_TYPES, Body, flat
from coding_framework.data.lower.workers import GLOBAL_THREAD, Worker

SIDE = 32
"""Of a tile."""
_ROWS = 8
"""Rows of a tile that its threads take at once."""


@dataclass(frozen=True, slots=True)
class Fours(Worker):
    """A thread for four neighbours."""

    def opening(self, total: str) -> list[str]:
        return [f"const int first = 4 * ({GLOBAL_THREAD});", f"if (first >= {total}) return;"]

    def launch(self, total: str) -> str:
        return f"(blocks({total}) + 3) / 4, {self.threads}"


@dataclass(frozen=True, slots=True)
class Tiles(Worker):
    """A block for each tile."""

    tiles: str = ""
    """How many there are, on the host."""

    def opening(self, total: str) -> list[str]:
        return []

    def launch(self, total: str) -> str:
        return f"std::max<int64_t>({self.tiles}, 1), dim3({SIDE}, {_ROWS})"


def reads_neighbours(w: Any, node: Node, value: Value) -> tuple[bool, int | None]:
    """Of a node's elements: whether a tensor is read as it is written, and the axis along which the
    neighbours of one that is read lie, where that is another than the last."""
    body = w.body()
    dims = body.dims(node.type.shape)
    places = [body.name(f"i{k}") if dim != "1" else "0" for k, dim in enumerate(dims)]
    straight, across = False, set()

    def seen(memory: Memory, at: Sequence[str]) -> None:
        nonlocal straight
        straight = straight or (tuple(at), body.dims(memory.shape)) == (tuple(places), dims)
        if body.depth == 0:
            across.add(_across(w, body, memory, at, places))

    body.instead = seen
    value(body, places)
    found = across - {None}
    return straight, found.pop() if len(found) == 1 else None


def _across(
    w: Any, body: Body, memory: Memory, at: Sequence[str], places: Sequence[str]
) -> int | None:
    """The axis of the places along which a tensor's neighbours lie; None: the last, or none, or it
    is read at places that are computed."""
    free = [place for place in places if place != "0"]
    own = [place for place, dim in zip(at, body.dims(memory.shape), strict=True) if dim != "1"]
    words = set(re.findall(r"[A-Za-z_]\w*", " ".join(own)))
    if not own or not {*free[-1:]} <= words or not words <= {*free, *w.sizes.types}:
        return None
    return next((k for k, place in enumerate(places) if place == own[-1] != free[-1]), None)


def by_fours(w: Any, node: Node, value: Value, name: str) -> None:
    """Four neighbours a thread: what is read as it is written, in one access."""
    w.file("fours.cu")
    body = w.body()
    dims, total = body.dims(node.type.shape), w.total(node.type.shape)
    kept = C_TYPES[node.type.dtype].kept
    free = [k for k, dim in enumerate(dims) if dim != "1"]
    coordinates = {k: "i" if len(free) == 1 else body.name(f"i{k}") for k in free}
    places = [coordinates.get(k, "0") for k in range(len(dims))]
    body.index = (tuple(places), dims, "i")
    fours: dict[str, str] = {}

    def instead(memory: Memory, at: Sequence[str]) -> str | None:
        if (tuple(at), body.dims(memory.shape)) != (tuple(places), dims):
            return None
        if memory.name not in fours:
            fours[memory.name] = body.name(f"{memory.name}4")
        return f"{fours[memory.name]}.of[k]"

    body.instead = instead
    with body.block("for"):
        body.line("const int i = first + k;")
        body.line(f"out4.of[k] = {value(body, places)};")
        words = set(re.findall(r"\w+", "\n".join(body.lines[2:])))
        needed = [k for k in free if coordinates[k] in words]
        rest = free[free.index(needed[0]) :] if needed else []
        if len(free) > 1 and rest:
            body.line(_next(rest, free, coordinates, dims))
    bound = f"k < 4 && first + k < {total}" if rest else "k < 4"
    body.lines[0] = f"for (int k = 0; {bound}; k++) {{"
    before = [
        f"const Four<{body.reads[read]}> {four} = load_four({read}, first, {total});"
        for read, four in fours.items()
    ]
    if len(free) > 1:
        before += _begin(rest, free, coordinates, dims)
    body.lines[:0] = [*before, f"Four<{kept}> out4;", "#pragma unroll"]
    body.line(f"store_four(out, first, {total}, out4);")
    memory = w.allocate(node, name)
    w.launch(memory.name, body, [("out", memory)], node.type.shape, Fours())


def _begin(
    rest: Sequence[int], free: Sequence[int], names: dict[int, str], dims: Sequence[str]
) -> list[str]:
    """The coordinates of the first of four."""
    lines, left = [], "first"
    for k in reversed(rest):
        wrapped = left if k == free[0] else f"{left} % {dims[k]}"
        lines.append(f"int {names[k]} = {wrapped};")
        left += f" / {dims[k]}"
    return lines


def _next(
    rest: Sequence[int], free: Sequence[int], names: dict[int, str], dims: Sequence[str]
) -> str:
    """From the coordinates of one to those of its neighbour."""
    slowest = names[rest[0]]
    text = f"{slowest}++;"
    if rest[0] != free[0]:
        text = f"if (++{slowest} == {dims[rest[0]]}) {slowest} = 0;"
    for k in rest[1:]:
        text = f"if (++{names[k]} == {dims[k]}) {{ {names[k]} = 0; {text} }}"
    return text


def by_tiles(w: Any, node: Node, value: Value, name: str, axis: int) -> None:
    """What lies along another axis is read along it into a tile, and written along the last one."""
    body = w.body()
    dims = body.dims(node.type.shape)
    free = [k for k, dim in enumerate(dims) if dim != "1"]
    last = free[-1]
    places = [body.name(f"i{k}") if k in free else "0" for k in range(len(dims))]
    across, down = (f"({dims[k]} + {SIDE - 1}) / {SIDE}" for k in (last, axis))
    others = [k for k in free if k not in (last, axis)]
    batch = " * ".join(dims[k] for k in others)
    column = body.let("int", "column", f"blockIdx.x % ({across}) * {SIDE}")
    row = body.let("int", "row", f"blockIdx.x / ({across}) % ({down}) * {SIDE}")
    left = f"blockIdx.x / ({across}) / ({down})"
    for k in reversed(others):
        wrapped = left if k == others[0] else f"{left} % {dims[k]}"
        body.line(f"const int {places[k]} = {wrapped};")
        left += f" / {dims[k]}"
    tiles: dict[tuple[str, tuple[str, ...]], str] = {}
    found: list[tuple[Memory, tuple[str, ...]]] = []

    def instead(memory: Memory, at: Sequence[str]) -> str | None:
        if body.depth > 1 or _across(w, body, memory, at, places) != axis:
            return None
        key = (memory.name, tuple(at))
        if key not in tiles:
            tiles[key] = body.name("tile")
            found.append((memory, key[1]))
        return f"{tiles[key]}[threadIdx.x][q]"

    body.instead = instead
    walk = f"for (int q = threadIdx.y; q < {SIDE}; q += {_ROWS})"
    start = len(body.lines)
    with body.block(walk):
        body.line(f"const int {places[last]} = {column} + threadIdx.x;")
        body.line(f"const int {places[axis]} = {row} + q;")
        outside = f"{places[last]} >= {dims[last]} || {places[axis]} >= {dims[axis]}"
        body.line(f"if ({outside}) continue;")
        body.line(f"out[{flat(places, dims)}] = {value(body, places)};")
    loads = []
    for memory, at in found:
        tile, kept = tiles[memory.name, at], C_TYPES[memory.dtype].kept
        loads.append(
            f"    {tile}[q][threadIdx.x] = {memory.name}[{flat(at, body.dims(memory.shape))}];"
        )
        body.lines.insert(start, f"__shared__ {kept} {tile}[{SIDE}][{SIDE + 1}];")
    inside = f"{places[last]} < {dims[last]} && {places[axis]} < {dims[axis]}"
    body.lines[start + len(found) : start + len(found)] = [
        f"{walk} {{",
        f"  const int {places[last]} = {column} + q;",
        f"  const int {places[axis]} = {row} + threadIdx.x;",
        f"  if ({inside}) {{",
        *loads,
        "  }",
        "}",
        "__syncthreads();",
    ]
    memory = w.allocate(node, name)
    number = f"(int64_t)({across}) * ({down})" + (f" * {batch}" if batch else "")
    w.launch(memory.name, body, [("out", memory)], node.type.shape, Tiles(tiles=number))
