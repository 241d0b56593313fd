"""Pools over windows of one to three axes, and over as many windows as there are outputs; images
at other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from coding_framework.data.graph import Node
from coding_framework.data.lower.text import C_TYPES, Body, Places, atom, flat, literal, plus, times
from coding_framework.data.ops.views import Reads, number


def _sides(node: Node, name: str, count: int, default: Any) -> list[Any]:
    """An option for each axis: one number may stand for all, none for the default."""
    found = node.get(name)
    if found is None or found == []:
        return list(default)
    values = found if isinstance(found, list) else [found]
    return values if len(values) == count else values * count


def _spatial(node: Node) -> int:
    return next(n for n in (1, 2, 3) if f"{n}d" in node.base)


class _Most:
    """The largest element of a window, and its place among those of its channel."""

    def __init__(self, node: Node, body: Body) -> None:
        self.x, self.body = node["self"], body
        dtype = self.x.type.dtype
        self.kind = C_TYPES[dtype].computed
        lowest = "-INFINITY" if "float" in dtype else literal(-(1 << 31) + 1, dtype)
        self.most = body.variable(self.kind, "most", lowest)
        self.chosen = body.variable("int", "chosen", "0")

    def take(self, reads: Reads, places: Places, lengths: Sequence[str]) -> list[str]:
        """The element at the places, of which the last ones are of these lengths."""
        body = self.body
        value = body.let(self.kind, "x", reads.read(self.x, body, places))
        with body.block(f"if ({value} > {self.most})"):
            body.line(f"{self.most} = {value};")
            body.line(f"{self.chosen} = {flat(places[len(places) - len(lengths) :], lengths)};")
        return [self.most, self.chosen]


def max_pool(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, count = node["self"], _spatial(node)
    sides = _sides(node, "kernel_size", count, ())
    steps = _sides(node, "stride", count, sides)
    pads = _sides(node, "padding", count, [0] * count)
    apart = _sides(node, "dilation", count, [1] * count)
    outer, there = places[:-count], places[-count:]
    lengths = body.dims(x.type.shape[-count:])
    most = _Most(node, body)
    with ExitStack() as stack:
        at: list[str] = []
        for k in range(count):
            tap = stack.enter_context(body.loop("pqr"[k], body.extent(sides[k])))
            place = plus(times(there[k], body.extent(steps[k])), times(tap, body.extent(apart[k])))
            place = place if pads[k] == 0 else f"{place} - {body.extent(pads[k])}"
            place = body.let("int", "yxz"[k], place)
            clear = pads[k] == 0 and not node.get("ceil_mode", False)
            if not clear and sides[k] != 1:
                body.line(f"if ({place} < 0 || {place} >= {lengths[k]}) continue;")
            at.append(place)
        return most.take(reads, [*outer, *at], lengths)


def adaptive_max_pool(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    count = _spatial(node)
    lengths = body.dims(node["self"].type.shape[-count:])
    counts = body.dims(node.type.shape[-count:])
    most = _Most(node, body)
    with ExitStack() as stack:
        at = []
        for k in range(count):
            begin, end = _bounds(body, places[k - count], lengths[k], counts[k])
            at.append(stack.enter_context(body.loop("yxz"[k], end, start=begin)))
        return most.take(reads, [*places[:-count], *at], lengths)


def avg_pool(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, count = node["self"], _spatial(node)
    sides = _sides(node, "kernel_size", count, ())
    steps = _sides(node, "stride", count, sides)
    pads = _sides(node, "padding", count, [0] * count)
    lengths = body.dims(x.type.shape[-count:])
    divisor = node.get("divisor_override")
    padded = node.get("count_include_pad", True) or all(p == 0 for p in pads)
    ceil = bool(node.get("ceil_mode", False))
    total = _zero(node, body)
    counts, loops = [], []
    for k in range(count):
        side, step, pad = map(body.extent, (sides[k], steps[k], pads[k]))
        begin = times(places[k - count], step)
        begin = body.let("int", "from", begin if pad == "0" else f"{begin} - {pad}")
        if pad == "0" and not ceil:
            counts.append(side)
            loops.append((begin, plus(begin, side)))
            continue
        whole = f"min({begin} + {side}, {plus(lengths[k], pad)})"
        end = body.let("int", "to", whole)
        first = body.let("int", "first", f"max({begin}, 0)")
        last = body.let("int", "last", f"min({end}, {lengths[k]})")
        counts.append(f"({end} - {begin})" if padded else f"({last} - {first})")
        loops.append((first, last))
    _summed(reads, node, body, places, total, loops)
    by = str(divisor) if divisor is not None else " * ".join(counts)
    return [f"{total} / {by if by.isdigit() else f'({by})'}"]


def adaptive_avg_pool(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    count = _spatial(node)
    lengths = body.dims(node["self"].type.shape[-count:])
    counts = body.dims(node.type.shape[-count:])
    total = _zero(node, body)
    loops = [
        ("0", lengths[k])
        if counts[k] == "1"
        else _bounds(body, places[k - count], lengths[k], counts[k])
        for k in range(count)
    ]
    _summed(reads, node, body, places, total, loops)
    sizes = [end if begin == "0" else f"({end} - {begin})" for begin, end in loops]
    return [f"{total} / ({' * '.join(sizes)})"]


def _zero(node: Node, body: Body) -> str:
    dtype = node.type.dtype
    return body.variable(C_TYPES[dtype].computed, "sum", literal(0, dtype))


def _summed(
    reads: Reads, node: Node, body: Body, places: Places, total: str,
    loops: Sequence[tuple[str, str]],
) -> None:  # fmt: skip
    """Add the elements of a window. loops: from, up to, along each of its axes."""
    with ExitStack() as stack:
        at = [
            stack.enter_context(body.loop("yxz"[k], last, start=first))
            for k, (first, last) in enumerate(loops)
        ]
        outer = places[: len(places) - len(loops)]
        body.line(f"{total} += {reads.read(node['self'], body, [*outer, *at])};")


def _bounds(body: Body, place: str, length: str, count: str) -> tuple[str, str]:
    """Of the window of one output of an adaptive pool: from, up to."""
    begin = body.let("int", "from", f"{place} * {atom(length)} / {count}")
    end = body.let("int", "to", f"(({place} + 1) * {atom(length)} + {count} - 1) / {count}")
    return begin, end


def _step(node: Node, body: Body, axis: int) -> str:
    """How far apart in the input neighbours of an image of another size lie."""
    x, dtype = node["input"], node.type.dtype
    kind = C_TYPES[dtype].computed
    length, count = (body.extent(of.shape[2 + axis]) for of in (x.type, node.type))
    factors = node.get("scale_factors")
    step = f"({kind}){length} / {count}"
    if node.get("align_corners", False):
        step = f"({kind})({length} - 1) / max({count} - 1, 1)"
    elif factors:
        step = f"{literal(1, dtype)} / {number(body, factors[axis], dtype)}"
    return body.let(kind, "step", step)


def nearest(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    suffix = C_TYPES[node.type.dtype].suffix
    there = list(places[:2])
    for axis, length in enumerate(body.dims(node["input"].type.shape[2:])):
        at = f"(int)floor{suffix}({places[2 + axis]} * {_step(node, body, axis)})"
        there.append(body.let("int", "yxz"[axis], f"min({at}, {length} - 1)"))
    return [reads.read(node["input"], body, there)]


def bilinear(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    """The mean of four elements, by how near they are."""
    x, dtype = node["input"], node.type.dtype
    kind, suffix = C_TYPES[dtype].computed, C_TYPES[dtype].suffix
    zero, half, one = (literal(n, dtype) for n in (0, 0.5, 1))
    sides = []
    for axis, length in enumerate(body.dims(x.type.shape[2:])):
        step = _step(node, body, axis)
        at = f"{step} * {places[2 + axis]}"
        if not node["align_corners"]:
            at = f"fmax{suffix}({step} * ({places[2 + axis]} + {half}) - {half}, {zero})"
        at = body.let(kind, "at", at)
        before = body.let("int", "yx"[axis], f"min((int){at}, {length} - 1)")
        behind = body.let("int", "yx"[axis], f"min({before} + 1, {length} - 1)")
        part = body.let(kind, "part", f"{at} - {before}")
        sides.append(((before, f"({one} - {part})"), (behind, part)))
    terms = [
        f"{y_part} * {x_part} * {atom(reads.read(x, body, [*places[:2], y, x_place]))}"
        for y, y_part in sides[0]
        for x_place, x_part in sides[1]
    ]
    return [" + ".join(terms)]
