"""Operations that write kernels of their own, where one thread an output, or a row, is no form:
what is written where an index says, what is sorted, and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coding_framework.data.graph import Node
from coding_framework.data.lower.text import C_TYPES, FLOATS, HALVES, atom, broadcast, flat, literal
from coding_framework.data.ops import recurrent
from coding_framework.data.ops.views import axis_of, index_places, number

Whole = Callable[[Any, Node], None]
"""(the lowering, the node): launches what puts the node's results in memory."""


_ATOMIC = {"int32": "int", "int64": "unsigned long long"}
"""Whole numbers that may be added in any order, and as what."""


def _index_put(lowering: Any, node: Node) -> None:
    """A copy, and a kernel that writes the values where the indices say. Where fractions are added
    one thread goes along all places, so that the order of the sum is always the same."""
    copy = lowering.copied(node, node["self"])
    indices = [i for i in node["indices"] if i is not None]
    for one in (*indices, node["values"]):
        lowering.ready(one)
    lead = max((i.type.shape for i in indices), key=len)
    named = [axis for axis, index in enumerate(node["indices"]) if index is not None]
    together = named == list(range(named[0], named[-1] + 1))
    first = named[0] if together else 0
    shape = node["self"].type.shape
    rest = [size for axis, size in enumerate(shape) if axis not in named]
    before, behind = rest[:first], rest[first:]
    body = lowering.body()
    adds = bool(node.get("accumulate", False))
    atomic = adds and node.type.dtype in _ATOMIC
    serial = adds and not atomic
    count = rest if serial else [*before, *lead, *behind]
    places = body.split("i", body.dims(count), "i")
    value_type = C_TYPES[node.type.dtype].computed

    def write(at: list[str]) -> None:
        there = index_places(lowering, node, body, at)
        source = broadcast(node["values"].type.shape, at)
        value = body.let(value_type, "value", lowering.read(node["values"], body, source))
        target = f"out[{flat(there, body.dims(shape))}]"
        if atomic:
            kind = _ATOMIC[node.type.dtype]
            body.line(f"atomicAdd(({kind}*)&{target}, ({kind}){value});")
        else:
            body.line(f"{target} {'+=' if serial else '='} {value};")

    if not serial:
        write(places)
    else:
        from coding_framework.data.ops.contractions import nest

        with nest(body, [("r", d) for d in body.dims(lead)]) as at:
            write([*places[: len(before)], *at, *places[len(before) :]])
    lowering.launch(node.name, body, [("out", copy)], count)


def _written(lowering: Any, node: Node) -> None:
    """index_add, index_copy, scatter and scatter_add: a copy, and a thread for each line along the
    axis, so that the order of a sum is always the same."""
    axis = axis_of(node)
    copy = lowering.copied(node, node["self"])
    index = node["index"]
    source = node.get("source", node.get("src", node.get("value")))
    lowering.ready(index)
    if isinstance(source, Node):
        lowering.ready(source)
    along = node.base.startswith("index")
    shape = source.type.shape if along else index.type.shape
    count = [1 if a == axis else size for a, size in enumerate(shape)]
    body = lowering.body()
    places = body.split("i", body.dims(count), "i")
    with body.loop("r", body.extent(shape[axis])) as r:
        here = [*places[:axis], r, *places[axis + 1 :]]
        at = f"(int){atom(lowering.read(index, body, [r] if along else here))}"
        there = [*places[:axis], body.let("int", "at", at), *places[axis + 1 :]]
        value = (
            lowering.read(source, body, here)
            if isinstance(source, Node)
            else number(body, source, node.type.dtype)
        )
        alpha = node.get("alpha", 1)
        value = value if alpha == 1 else f"{literal(alpha, node.type.dtype)} * {atom(value)}"
        sign = "+=" if node.base in ("index_add", "scatter_add") else "="
        body.line(f"out[{flat(there, body.dims(node.type.shape))}] {sign} {value};")
    lowering.launch(node.name, body, [("out", copy)], count)


LONG_AXIS = 1024
"""Elements, at real size, from which an axis is sorted by a network: to count for each those that
come before it takes as many steps as it has elements."""


def _sorted(lowering: Any, node: Node) -> None:
    """Stable, and the same for a part of the order. NaN comes last, or first in a descending
    order."""
    down = bool(node.get("descending", False)) if node.base != "topk" else bool(node["largest"])
    lowering.stored(node["self"])
    shape = node["self"].type.shape
    axis = axis_of(node, default=-1)
    long = bool(shape) and lowering.worth((shape[axis],)) >= LONG_AXIS
    (_by_network if long else _by_ranks)(lowering, node, axis, down)


def _by_network(lowering: Any, node: Node, axis: int, down: bool) -> None:
    """Rows of pairs (value, place) are put in order, `cuda/sort.cu`, and read."""
    import sympy

    x, name, host = node["self"], node.name, lowering.host
    shape, dtype = x.type.shape, x.type.dtype
    rows = [size for a, size in enumerate(shape) if a != axis]
    kept = "float32" if dtype in HALVES else dtype
    padded = sympy.Symbol(f"{name}_padded", integer=True, positive=True)
    lowering.sizes.types[padded.name] = "int"
    count = lowering.sizes.name(shape[axis])
    host += [f"int {padded.name} = 1;", f"while ({padded.name} < {count}) {padded.name} *= 2;"]
    lowering.file("sort.cu", SCALAR=C_TYPES[kept].kept)
    pairs = [
        lowering.allocated_as(f"{name}_{what}", (*rows, padded), kind)
        for what, kind in (("values", kept), ("places", "int32"))
    ]
    body = lowering.body()
    *row, at = body.split("i", body.dims((*rows, padded)), "i")
    body.line(f"places[i] = {at};")
    with body.block(f"if ({at} < {body.extent(shape[axis])})"):
        body.line(f"values[i] = {lowering.read(x, body, [*row[:axis], at, *row[axis:]])};")
    writes = list(zip(("values", "places"), pairs, strict=True))
    lowering.launch(f"{name}_pairs", body, writes, (*rows, padded))
    pointers = ", ".join(f"{m.name}.data_ptr<{C_TYPES[m.dtype].kept}>()" for m in pairs)
    total = lowering.total(rows)
    threads = f"blocks((int64_t){total} * ({padded.name} / 2)), 256"
    host += [
        f"for (int side = 2; side <= {padded.name}; side *= 2)",
        "  for (int apart = side / 2; apart > 0; apart /= 2)",
        f"    sort_step_kernel<<<{threads}>>>({pointers}, {total}, {padded.name}, {count}, side, "
        f"apart, {str(down).lower()});",
    ]
    results = {1: node} if node.base == "argsort" else lowering.results_of(node)
    for which, made in results.items():

        def value(body: Any, places: Any, which: int = which) -> str:
            length = body.extent(shape[axis])
            one = {"kthvalue": lambda: f"{body.extent(node['k'])} - 1",
                   "median": lambda: f"({length} - 1) / 2"}.get(node.base)  # fmt: skip
            if one is None:
                row, at = [*places[:axis], *places[axis + 1 :]], places[axis]
            else:
                row = list(places)
                at = one()
                if node["keepdim"]:
                    del row[axis]
            return str(lowering.loaded(pairs[which], body, [*row, at]))

        lowering.each_element(made, value, made.name)


def _by_ranks(lowering: Any, node: Node, axis: int, down: bool) -> None:
    """Each element counts those that come before it, and writes itself there."""
    x = node["self"]
    shape = x.type.shape
    kind = C_TYPES[x.type.dtype].computed
    body = lowering.body()
    dims = body.dims(shape)
    places = body.split("i", dims, "i")
    body.index = (tuple(places), dims, "i")
    value = body.let(kind, "value", lowering.read(x, body, places))
    rank = body.variable("int", "rank", "0")
    with body.loop("r", dims[axis]) as r:
        other = body.let(
            kind, "other", lowering.read(x, body, [*places[:axis], r, *places[axis + 1 :]])
        )
        one, two = (value, other) if down else (other, value)
        less = f"{one} < {two}"
        if x.type.dtype in FLOATS:
            less = f"({less} || ({two} != {two} && {one} == {one}))"
        same = f"{other} == {value}"
        if x.type.dtype in FLOATS:
            same = f"({same} || ({other} != {other} && {value} != {value}))"
        body.line(f"{rank} += {less} || ({same} && {r} < {places[axis]});")
    results = lowering.results_of(node)
    single = node.base == "argsort"
    writes, lines = [], []
    for which, made in ({1: node} if single else results).items():
        there = [*places[:axis], rank, *places[axis + 1 :]]
        if node.base in ("kthvalue", "median"):
            there = [*places[:axis], *(["0"] if node["keepdim"] else []), *places[axis + 1 :]]
        memory = lowering.allocate(made)
        parameter = "indices" if which else "values"
        target = flat(there, body.dims(made.type.shape)) if made.type.shape else "0"
        lines.append(f"{parameter}[{target}] = {places[axis] if which else value};")
        writes.append((parameter, memory))
    extent = body.extent(shape[axis])
    only = {
        "topk": lambda: f"if ({rank} < {body.extent(node['k'])})",
        "kthvalue": lambda: f"if ({rank} == {body.extent(node['k'])} - 1)",
        "median": lambda: f"if ({rank} == ({extent} - 1) / 2)",
    }.get(node.base)
    if only is None:
        for line in lines:
            body.line(line)
    else:
        with body.block(only()):
            for line in lines:
                body.line(line)
    lowering.launch(node.name, body, writes, shape)


WHOLES: Mapping[str, Whole] = {
    "index_put": _index_put,
    **dict.fromkeys(("index_add", "index_copy", "scatter", "scatter_add"), _written),
    "sort": _sorted,
    "argsort": _sorted,
    "topk": _sorted,
    "kthvalue": _sorted,
    "median": _sorted,
    **dict.fromkeys(recurrent.GATES, recurrent.layers),
}
