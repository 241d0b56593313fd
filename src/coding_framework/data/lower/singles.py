"""A reduction to one result by many blocks: each joins a part, and a second kernel joins those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from coding_framework.data.lower.naive import Group, Memory, cast, start_of, typed
from coding_framework.data.lower.text import C_TYPES
from coding_framework.data.lower.workers import THREADS, Block
from coding_framework.data.ops.heads import Layout, Row

_EACH = 1024
"""Elements of a block, up to as many blocks."""
_BLOCK = Block(shuffles=True)


@dataclass(frozen=True, slots=True)
class Grid(Block):
    """All threads of all blocks, of which a block joins its own."""

    @property
    def start(self) -> str:
        return f"blockIdx.x * {THREADS} + threadIdx.x"

    @property
    def step(self) -> str:
        return f"{THREADS} * gridDim.x"


def one_result(w: Any, group: Group, row: Row, layout: Layout) -> None:
    """Two kernels. The row has one pass and one result."""
    head = group.head
    (one,) = row.passes(head)
    dtype = head.type.dtype
    kind, known = C_TYPES[dtype].computed, w.known_of_row(head)
    start = start_of(one, dtype)
    join = typed(one.join, dtype)
    count = w.total(layout.inner)

    body = w.body()
    of_grid = Grid(shuffles=True)
    of_grid.prepare(body, kind)
    name = body.variable(kind, one.name, start)
    inner = body.dims(layout.inner)
    with body.loop("r", count, of_grid.start, of_grid.step) as r:
        there = layout.place(body, ["0"] * len(layout.rows), body.split(r, inner, "r"))
        text = cast(w.read(head[row.of], body, there), head[row.of].type.dtype, dtype)
        x = body.named(kind, "x", text)
        body.line(f"{name} = {typed(one.step, dtype).format(x=x, **known, **{one.name: name})};")
    of_grid.join(body, name, kind, join, known["f"])
    body.line(f"if (threadIdx.x == 0) out[i] = {name};")
    parts = _parts(w, head.name, count, dtype)
    w.launch(f"{w.kernel_name(group)}_parts", body, [("out", parts)], parts.shape, of_grid)

    body = w.body()
    _BLOCK.prepare(body, kind)
    known["n"] = body.let(kind, "n", count)
    name = known[one.name] = body.variable(kind, one.name, start)
    body.reads[parts.name] = kind
    with body.loop("r", parts.shape[0].name, _BLOCK.start, _BLOCK.step) as r:
        joined = join.format(a=name, b=f"{parts.name}[{r}]", f=known["f"])
        body.line(f"{name} = {joined};")
    _BLOCK.join(body, name, kind, join, known["f"])
    if one.end:
        body.line(f"{name} = {typed(one.end, dtype).format(**known)};")
    body.line("if (threadIdx.x != 0) return;")
    places = ["0"] * len(layout.rows)
    body.index = (tuple(places), body.dims(layout.rows), "i")
    writes = w.finish(group, body, places, {0: typed(row.result, dtype).format(**known)})
    w.launch(w.kernel_name(group), body, writes, layout.rows, _BLOCK)


def _parts(w: Any, of: str, count: str, dtype: str) -> Memory:
    """The tensor of what the blocks found."""
    number, tensor = f"{of}_blocks", f"{of}_parts"
    total = f"(int64_t){count}" if "*" in count else count
    w.sizes.say(number, f"std::min<int64_t>(blocks({total}), {_EACH})")
    kept = "float32" if C_TYPES[dtype].computed == "float" else dtype
    first = w.graph.arguments[0].name
    kind = C_TYPES[kept].torch
    w.host.append(f"auto {tensor} = torch::empty({{{number}}}, {first}.options().dtype({kind}));")
    return Memory(tensor, (sympy.Symbol(number),), kept)
