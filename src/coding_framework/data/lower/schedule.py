"""Levels of kernels for a graph: the naive one, and faster ones, each with its reason.

A level is a `Schedule`: the same lowering, which gives a head or a map to other workers. A level
that changes nothing in a graph is left out.

    vectorized   maps by four neighbours a thread
    shared       moves through tiles; rows by a block, columns by sixteen threads; products by tiles
    shuffle      rows and scans by a warp, one result by many blocks
    registers    products by tiles in registers
    tensor cores products of float32 on tensor cores, each factor in two parts; as TF32 where the
                 module asks for it
    wide         rows that are walked more than once by 512 threads
"""

from __future__ import annotations

from collections.abc import Mapping

from coding_framework.data.graph import Graph, Node
from coding_framework.data.lower import maps, products
from coding_framework.data.lower.naive import Group, Lowering, Value, listed
from coding_framework.data.lower.scans import by_warps
from coding_framework.data.lower.singles import one_result
from coding_framework.data.lower.workers import WARPS, Block, Columns, Worker
from coding_framework.data.ops.heads import LOOPS, Layout, Row, walks_of
from coding_framework.data.ops.products import Product, product_of
from coding_framework.types import KernelExample

LEVELS = ("naive", "vectorized", "shared", "shuffle", "registers", "tensor cores", "wide")
LEAST = 16
"""Rows, columns and terms of a product from which it is made by tiles; of twice as many by those of
tensor cores."""
_WHY: Mapping[str, str] = {
    "fours": "four neighbours a thread move 16 bytes in one access, so fewer instructions and more "
    "bytes on their way",
    "tiles": "a padded 32x32 tile in shared memory makes reads and writes coalesced and free of "
    "bank conflicts",
    "block": "a block per row reads neighbouring columns together (coalesced) and joins them in "
    "shared memory",
    "columns": "16 threads share each column, so 16 times as many loads are on their way, still "
    "coalesced along the row",
    "warp": "a warp per row reads 32 neighbouring columns at once (coalesced) and joins them with "
    "shuffles, without shared memory or barriers",
    "joined": "each warp joins its part by shuffles before the warps meet in shared memory, so two "
    "barriers and not nine",
    "blocks": "the whole GPU reads instead of one block, and a second kernel joins what the blocks "
    "found",
    "scan": "a warp scans 32 neighbouring columns in 5 shuffle steps with coalesced reads and "
    "writes, instead of one thread walking the row",
    "wide": "512 threads per row join their parts in shared memory, and fewer rows at a time mean "
    "that walking a row again finds it in the caches",
    "shared product": "each element of a 16x16 tile in shared memory is read from global memory "
    "once and used by 16 threads",
    "register product": "each thread keeps 4x4 outputs in registers, so a value read from shared "
    "memory is used four times, and one read from global memory 64 times",
    "tensor product": "products run on tensor cores: each factor is split in two TF32 parts, and "
    "copies of the next stages run meanwhile",
    "TF32 product": "products run on tensor cores, which read factors as TF32, from tiles that "
    "asynchronous copies bring ahead of time",
}  # fmt: skip


class Schedule(Lowering):
    """The kernels of one level."""

    def __init__(self, graph: Graph, level: str) -> None:
        super().__init__(graph)
        self.rank = LEVELS.index(level)
        self.used: dict[str, None] = {}
        """Forms that are used, in their order."""

    def has(self, level: str) -> bool:
        return self.rank >= LEVELS.index(level)

    def use(self, form: str) -> None:
        self.used[form] = None

    # --- maps ---

    def each_element(self, node: Node, value: Value, name: str) -> None:
        straight, axis = maps.reads_neighbours(self, node, value)
        if axis is not None and self.has("shared"):
            self.use("tiles")
            maps.by_tiles(self, node, value, name, axis)
        elif axis is None and straight and self.has("vectorized"):
            self.use("fours")
            maps.by_fours(self, node, value, name)
        else:
            super().each_element(node, value, name)

    # --- rows ---

    def worker(self, head: Node, row: Row, layout: Layout) -> Worker:
        if not self.has("shared"):
            return super().worker(head, row, layout)
        if _is_across(self, head, row, layout):
            self.use("columns")
            return Columns()
        naive = super().worker(head, row, layout)
        if naive.alone:
            self.use("warp" if self.has("shuffle") else "block")
            return WARPS if self.has("shuffle") else Block(128)
        if self.has("wide") and walks_of(head) > 1:
            self.use("wide")
            return Block(512, shuffles=True)
        if not self.has("shuffle"):
            return naive
        self.use("joined")
        return Block(shuffles=True)

    def row_kernel(self, group: Group, row: Row) -> None:
        layout = row.layout(group.head)
        single = walks_of(group.head) == 1 and all(size == 1 for size in layout.rows)
        if single and self.has("shuffle"):
            self.use("blocks")
            one_result(self, group, row, layout)
        else:
            super().row_kernel(group, row)

    # --- scans and products ---

    def scan_kernel(self, group: Group) -> None:
        if self.has("shuffle") and by_warps(self, group):
            self.use("scan")
        else:
            super().scan_kernel(group)

    def loop_kernel(self, group: Group) -> None:
        product = product_of(self, group.head) if self.has("shared") else None
        if product is None or self._least(product) < LEAST:
            super().loop_kernel(group)
        elif not self._on_tensor_cores(group, product):
            form = "register" if self.has("registers") else "shared"
            self.use(f"{form} product")
            tiling = products.REGISTERS if self.has("registers") else products.SHARED
            products.by_tiles(self, group, product, tiling)

    def _on_tensor_cores(self, group: Group, product: Product) -> bool:
        """Whether the product has such a kernel: of both factors in memory, in float32."""
        head = group.head
        operands = LOOPS[head.base].operands
        factors = [one for name in operands for one in listed(head[name])]
        kinds = {one.type.dtype for one in (head, *factors)}
        if not self.has("tensor cores") or kinds != {"float32"} or self._least(product) < 2 * LEAST:
            return False
        for one in factors:
            self.ready(one, 1)
        tiling = products.in_tf32(self, product) if self.graph.tf32 else products.FULL
        try:
            products.by_tiles(self, group, product, tiling)
        except products.NoAddressError:
            return False
        self.use("TF32 product" if self.graph.tf32 else "tensor product")
        return True

    def _least(self, product: Product) -> float:
        return min(map(self.worth, (product.rows, product.columns, product.inner)))


def _is_across(w: Lowering, head: Node, row: Row, layout: Layout) -> bool:
    """Whether neighbours in memory belong to other rows."""
    body = w.body()
    rows = [f"row{k}" for k in range(len(layout.rows))]
    inner = [f"inner{k}" for k in range(len(layout.inner))]
    there = layout.place(body, rows, inner)
    dims = body.dims(head[row.of].type.shape)
    free = [place for place, dim in zip(there, dims, strict=True) if dim != "1"]
    return bool(free) and "inner" not in free[-1]


def levels(graph: Graph, task: str = "") -> tuple[KernelExample, ...]:
    """The naive kernel of a graph, and faster ones with their reasons; the best guess is the last.
    Raises UnreadableError, which names an operation that has no kernel and its line."""
    made: list[KernelExample] = []
    before: dict[str, None] = {}
    for level in LEVELS:
        schedule = Schedule(graph, level)
        code = schedule.source()
        if any(code == one.code for one in made):
            continue
        new = [form for form in schedule.used if form not in before]
        why = "; ".join(_WHY[form] for form in new)
        before.update(schedule.used)
        made.append(KernelExample(task=task, level=level, code=code, why_faster=why))
    return tuple(made)
