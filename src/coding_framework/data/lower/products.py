"""Kernels of products by tiles: what `ops.products` says of one, filled into the files of
`data/cuda`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coding_framework.data.graph import Extent
from coding_framework.data.lower.naive import Group, Memory
from coding_framework.data.lower.text import C_TYPES, Body
from coding_framework.data.lower.workers import THREADS, WARP, Worker
from coding_framework.data.ops.products import Product, Side


@dataclass(frozen=True, slots=True)
class Tiling:
    """A file of `data/cuda`, the function in it, and its tiles."""

    file: str
    function: str
    rows: int
    """Of a tile."""
    columns: int
    turns: bool = True
    """Whether it is told along which index neighbours lie."""
    threads: int = THREADS
    shared_bytes: int = 0
    """Of the memory that the launch gives."""
    arguments: tuple[str, ...] = ()
    """Of its template, where it is given addresses, and told which neighbours lie together; without
    any it is given elements, and their type."""


SHARED = Tiling("shared_product.cu", "product_by_tiles", 16, 16, turns=False)
REGISTERS = Tiling("register_product.cu", "product_by_registers", 64, 64)


def on_tensor_cores(parts: int, rows: int, columns: int, side: int) -> Tiling:
    """parts: of which a factor is the sum, each read as TF32. side: of the outputs of a warp."""
    depth = 1024 // side
    return Tiling(
        "tensor_product.cu", "product_on_tensor_cores", rows, columns,
        threads=rows // side * (columns // side) * WARP,
        shared_bytes=3 * 4 * (rows + columns) * (depth + 4),
        arguments=(str(parts), str(rows), str(columns), str(side)),
    )  # fmt: skip


FULL = on_tensor_cores(2, 64, 64, 32)
"""Three products of TF32 parts, which have the precision of float32."""
TF32 = (
    on_tensor_cores(1, 256, 128, 64), on_tensor_cores(1, 128, 128, 64),
    on_tensor_cores(1, 64, 64, 32),
)  # fmt: skip
MULTIPROCESSORS = 132
"""Of an H200."""
READING = 64
"""Multiplications of tensor cores that take as long as to read one element of a tile's sides."""


def in_tf32(w: Any, product: Product) -> Tiling:
    """The tiles by which no multiprocessor has much to do."""
    rows, columns = w.worth(product.rows), w.worth(product.columns)

    def most(one: Tiling) -> int:
        tiles: int = math.ceil(rows / one.rows) * math.ceil(columns / one.columns)
        tiles *= math.ceil(w.worth(product.batch))
        each = one.rows * one.columns + READING * (one.rows + one.columns)
        return math.ceil(tiles / MULTIPROCESSORS) * each

    return min(TF32, key=most)


class NoAddressError(Exception):
    """An element of a side is computed, and lies nowhere."""


@dataclass(frozen=True, slots=True)
class TileBlock(Worker):
    """A block for each tile of outputs."""

    tiles: str = ""

    def opening(self, total: str) -> list[str]:
        return []

    def launch(self, total: str) -> str:
        return f"std::max<int64_t>({self.tiles}, 1), {self.threads}"


def by_tiles(w: Any, group: Group, product: Product, tiling: Tiling) -> None:
    """A kernel whose blocks make one tile of outputs each. Raises NoAddressError where it copies
    and an element is computed."""
    head = group.head
    body = w.body()
    kind = C_TYPES[head.type.dtype].computed
    rows, columns, inner = map(w.total, (product.rows, product.columns, product.inner))
    batch = body.dims(product.batch)
    tiles = " * ".join(
        f"(({size} + {side - 1}) / {side})"
        for size, side in ((rows, tiling.rows), (columns, tiling.columns))
    )
    tile, at = "blockIdx.x", []
    if any(dim != "1" for dim in batch):
        of_one = body.let("int", "tiles", tiles)
        tile = f"blockIdx.x % {of_one}"
        which = body.let("int", "pair", f"blockIdx.x / {of_one}")
        at = body.split(which, batch, "pair")
    else:
        at = ["0"] * len(batch)
    returned = f"const {kind}*" if tiling.arguments else kind
    left = _side(w, body, "left", returned, product.left, at, product.rows, product.inner)
    right = _side(w, body, "right", returned, product.right, at, product.columns, product.inner)
    w.file(tiling.file)
    down, along, total, store = map(body.name, ("row", "column", "sum", "store"))
    with body.block(f"auto {store} = [=](int {along})", end=";"):
        column = body.split(along, body.dims(product.columns), "column")
        with body.block(f"return [=](int {down}, {kind} {total})", end=";"):
            row = body.split(down, body.dims(product.rows), "row")
            places = product.place(body, at, row, column)
            value = product.value(body, places, total)
            writes = w.finish(group, body, places, {0: value})
    sides = (left, right)
    types = [*(tiling.arguments or (kind,))]
    types += [str(side.along).lower() for side in sides if tiling.turns]
    wide = [side.wide for side in sides if tiling.arguments]
    given = ", ".join((rows, columns, inner, tile, *wide, left.name, right.name, store))
    body.line(f"{tiling.function}<{', '.join(types)}>({given});")
    number = " * ".join((tiles.replace("((", "((int64_t)(", 1), *(d for d in batch if d != "1")))
    worker = TileBlock(tiling.threads, shared_bytes=tiling.shared_bytes, tiles=number)
    w.launch(w.kernel_name(group), body, writes, head.type.shape, worker)


@dataclass(frozen=True, slots=True)
class _Read:
    """The function that reads one side."""

    name: str
    along: bool
    """Whether neighbours in memory differ in the inner index."""
    wide: str
    """Whether four neighbours lie together at a multiple of 16 bytes, in C."""


def _side(
    w: Any, body: Body, name: str, returned: str, side: Side, at: Sequence[str],
    along: Sequence[Extent], inner: Sequence[Extent],
) -> _Read:  # fmt: skip
    """A function of an index of the side, which gives one of k, which gives an element or its
    address: `returned` is the C type."""
    own = body.name("row" if name == "left" else "column")
    k, function = body.name("k"), body.name(name)
    read: list[tuple[Memory, Sequence[str]]] = []
    body.instead = lambda memory, there: read.append((memory, there))
    with body.block(f"auto {function} = [=](int {own})", end=";"):
        place = body.split(own, body.dims(along), own)
        with body.block(f"return [=](int {k}) -> {returned}", end=";"):
            at_k = body.split(k, body.dims(inner), k)
            element = side(body, at, place, at_k)
            if returned.endswith("*"):
                if len(read) != 1 or not element.startswith(f"{read[0][0].name}["):
                    raise NoAddressError
                element = f"&{element}"
            body.line(f"return {element};")
    body.instead = None
    memory, there = read[-1]
    dims = body.dims(memory.shape)
    last = [p for p, d in zip(there, dims, strict=True) if d != "1"][-1:]
    is_along = any(p in at_k for p in last)
    places, lengths = (at_k, body.dims(inner)) if is_along else (place, body.dims(along))
    together = _together(there, dims, places, lengths)
    wide = f"{together} % 4 == 0 && (size_t){memory.name} % 16 == 0" if together else "false"
    return _Read(function, is_along, wide)


def _together(
    there: Sequence[str], dims: Sequence[str], places: Sequence[str], lengths: Sequence[str]
) -> str:
    """How many elements lie one behind the other as these places count: the product of the last
    axes that are the same; "" where the last one is not."""
    last = []
    for one, dim, place, length in zip(
        reversed(there), reversed(dims), reversed(places), reversed(lengths), strict=False
    ):
        if one != place or dim != length:
            break
        last.append(dim)
    return " * ".join(d for d in reversed(last) if d != "1")
