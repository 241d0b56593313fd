"""Kernels of products by tiles: what `ops.products` says of one, filled into the files of
`data/cuda`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coding_framework.data.graph import Extent
from coding_framework.data.lower.naive import Group, Memory
from coding_framework.data.lower.text import C_TYPES, Body
from coding_framework.data.lower.workers import Worker
from coding_framework.data.ops.products import Product, Side


@dataclass(frozen=True, slots=True)
class Tiling:
    """A file of `data/cuda`, the function in it, and the side of its tiles."""

    file: str
    function: str
    side: int
    turns: bool
    """Whether it is told along which index neighbours lie."""


SHARED = Tiling("shared_product.cu", "product_by_tiles", 16, turns=False)
REGISTERS = Tiling("register_product.cu", "product_by_registers", 64, turns=True)


@dataclass(frozen=True, slots=True)
class TileBlock(Worker):
    """A block for each tile of outputs."""

    tiles: str = ""

    def opening(self, total: str) -> list[str]:
        return []

    def launch(self, total: str) -> str:
        return f"std::max<int64_t>({self.tiles}, 1), {self.threads}"


def by_tiles(w: Any, group: Group, product: Product, tiling: Tiling) -> None:
    """A kernel whose blocks make one tile of outputs each."""
    head = group.head
    w.file(tiling.file)
    body = w.body()
    kind = C_TYPES[head.type.dtype].computed
    rows, columns, inner = map(w.total, (product.rows, product.columns, product.inner))
    batch = body.dims(product.batch)
    tiles = " * ".join(
        f"(({size} + {tiling.side - 1}) / {tiling.side})" for size in (rows, columns)
    )
    tile, at = "blockIdx.x", []
    if any(dim != "1" for dim in batch):
        of_one = body.let("int", "tiles", tiles)
        tile = f"blockIdx.x % {of_one}"
        which = body.let("int", "pair", f"blockIdx.x / {of_one}")
        at = body.split(which, batch, "pair")
    else:
        at = ["0"] * len(batch)
    left, left_along = _side(w, body, "left", kind, product.left, at, product.rows, product.inner)
    right, right_along = _side(
        w, body, "right", kind, product.right, at, product.columns, product.inner
    )
    down, along, total, store = map(body.name, ("row", "column", "sum", "store"))
    taken = f"int {down}, int {along}, {kind} {total}"
    with body.block(f"auto {store} = [=]({taken})", end=";"):
        row = body.split(down, body.dims(product.rows), "row")
        column = body.split(along, body.dims(product.columns), "column")
        places = product.place(at, row, column)
        value = product.value(body, places, total)
        writes = w.finish(group, body, places, {0: value})
    types = [kind, *((left_along, right_along) if tiling.turns else ())]
    given = ", ".join((rows, columns, inner, tile, left, right, store))
    body.line(f"{tiling.function}<{', '.join(types)}>({given});")
    number = " * ".join((tiles.replace("((", "((int64_t)(", 1), *(d for d in batch if d != "1")))
    w.launch(w.kernel_name(group), body, writes, head.type.shape, TileBlock(tiles=number))


def _side(
    w: Any, body: Body, name: str, kind: str, side: Side, at: Sequence[str],
    along: Sequence[Extent], inner: Sequence[Extent],
) -> tuple[str, str]:  # fmt: skip
    """The function that reads one side, and whether neighbours in memory differ in the inner
    index, in C."""
    own, k, function = (
        body.name("row" if name == "left" else "column"),
        body.name("k"),
        body.name(name),
    )
    last: list[str] = []

    def seen(memory: Memory, there: Sequence[str]) -> None:
        dims = body.dims(memory.shape)
        last.extend([p for p, d in zip(there, dims, strict=True) if d != "1"][-1:])

    body.instead = seen
    taken = f"int {own}, int {k}" if name == "left" else f"int {k}, int {own}"
    with body.block(f"auto {function} = [=]({taken}) -> {kind}", end=";"):
        place = body.split(own, body.dims(along), own)
        at_k = body.split(k, body.dims(inner), k)
        body.line(f"return {side(body, at, place, at_k)};")
    body.instead = None
    return function, str(any(one in at_k for one in last)).lower()
