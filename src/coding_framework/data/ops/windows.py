"""Pools over windows of one to three axes, and over as many windows as there are outputs; images
at other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from coding_framework.data.graph import Node
from coding_framework.data.lower.text import C_TYPES, Body, Places, atom, literal, plus, times
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


def max_pool(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    """The largest element of a window, and its place among those of its channel."""
    x, count = node["self"], _spatial(node)
    sides = _sides(node, "kernel_size", count, ())
    steps = _sides(node, "stride", count, sides)
    pads = _sides(node, "padding", count, [0] * count)
    apart = _sides(node, "dilation", count, [1] * count)
    outer, there = places[:-count], places[-count:]
    lengths = body.dims(x.type.shape[-count:])
    dtype = x.type.dtype
    most = body.variable(C_TYPES[dtype].computed, "most", _lowest(dtype))
    chosen = body.variable("int", "chosen", "0")
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
        value = body.let(C_TYPES[dtype].computed, "x", reads.read(x, body, [*outer, *at]))
        index = "0"
        for place, length in zip(at, lengths, strict=True):
            index = plus(times(index, length), place)
        with body.block(f"if ({value} > {most})"):
            body.line(f"{most} = {value};")
            body.line(f"{chosen} = {index};")
    return [most, chosen]


def _lowest(dtype: str) -> str:
    return "-INFINITY" if "float" in dtype else literal(-(1 << 31) + 1, dtype)


def avg_pool(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, count = node["self"], _spatial(node)
    sides = _sides(node, "kernel_size", count, ())
    steps = _sides(node, "stride", count, sides)
    pads = _sides(node, "padding", count, [0] * count)
    outer, there = places[:-count], places[-count:]
    lengths = body.dims(x.type.shape[-count:])
    dtype = node.type.dtype
    divisor = node.get("divisor_override")
    padded = node.get("count_include_pad", True) or all(p == 0 for p in pads)
    ceil = bool(node.get("ceil_mode", False))
    total = body.variable(C_TYPES[dtype].computed, "sum", literal(0, dtype))
    counts, loops = [], []
    for k in range(count):
        side, step, pad = map(body.extent, (sides[k], steps[k], pads[k]))
        begin = times(there[k], step)
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
    with ExitStack() as stack:
        at = [
            stack.enter_context(body.loop("yxz"[k], last, start=first))
            for k, (first, last) in enumerate(loops)
        ]
        body.line(f"{total} += {reads.read(x, body, [*outer, *at])};")
    by = str(divisor) if divisor is not None else " * ".join(counts)
    return [f"{total} / {by if by.isdigit() else f'({by})'}"]


def _bounds(body: Body, place: str, length: str, count: str) -> tuple[str, str]:
    """Of the window of one output of an adaptive pool: from, up to."""
    begin = body.let("int", "from", f"{place} * {atom(length)} / {count}")
    end = body.let("int", "to", f"(({place} + 1) * {atom(length)} + {count} - 1) / {count}")
    return begin, end


def adaptive_avg_pool(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, count = node["self"], _spatial(node)
    dtype = node.type.dtype
    lengths = body.dims(x.type.shape[-count:])
    counts = body.dims(node.type.shape[-count:])
    total = body.variable(C_TYPES[dtype].computed, "sum", literal(0, dtype))
    loops = [
        ("0", lengths[k])
        if counts[k] == "1"
        else _bounds(body, places[len(places) - count + k], lengths[k], counts[k])
        for k in range(count)
    ]
    with ExitStack() as stack:
        at = [
            stack.enter_context(body.loop("yxz"[k], end, start=begin))
            for k, (begin, end) in enumerate(loops)
        ]
        body.line(f"{total} += {reads.read(x, body, [*places[:-count], *at])};")
    sizes = [end if begin == "0" else f"({end} - {begin})" for begin, end in loops]
    return [f"{total} / ({' * '.join(sizes)})"]


def adaptive_max_pool(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, count = node["self"], _spatial(node)
    dtype = node.type.dtype
    lengths = body.dims(x.type.shape[-count:])
    counts = body.dims(node.type.shape[-count:])
    most = body.variable(C_TYPES[dtype].computed, "most", "-INFINITY")
    chosen = body.variable("int", "chosen", "0")
    with ExitStack() as stack:
        at = []
        for k in range(count):
            begin, end = _bounds(body, places[len(places) - count + k], lengths[k], counts[k])
            at.append(stack.enter_context(body.loop("yxz"[k], end, start=begin)))
        value = body.let(C_TYPES[dtype].computed, "x", reads.read(x, body, [*places[:-count], *at]))
        index = "0"
        for place, length in zip(at, lengths, strict=True):
            index = plus(times(index, length), place)
        with body.block(f"if ({value} > {most})"):
            body.line(f"{most} = {value};")
            body.line(f"{chosen} = {index};")
    return [most, chosen]


def _step(node: Node, body: Body, axis: int) -> str:
    """How far apart in the input neighbours of an image of another size lie."""
    x, dtype = node["input"], node.type.dtype
    kind = C_TYPES[dtype].computed
    length, count = (body.extent(of.shape[2 + axis]) for of in (x.type, node.type))
    if node.get("align_corners", False):
        return f"({kind})({length} - 1) / max({count} - 1, 1)"
    factors = node.get("scale_factors")
    if factors:
        return f"{literal(1, dtype)} / {number(body, factors[axis], dtype)}"
    return f"({kind}){length} / {count}"


def nearest(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, dtype = node["input"], node.type.dtype
    kind, suffix = C_TYPES[dtype].computed, C_TYPES[dtype].suffix
    there = list(places[:2])
    for axis, (place, length) in enumerate(
        zip(places[2:], body.dims(x.type.shape[2:]), strict=True)
    ):
        step = body.let(kind, "step", _step(node, body, axis))
        at = f"min((int)floor{suffix}({place} * {step}), {length} - 1)"
        there.append(body.let("int", "yxz"[axis], at))
    return [reads.read(x, body, there)]


def bilinear(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    """The mean of four elements, by how near they are."""
    x, dtype = node["input"], node.type.dtype
    kind, suffix = C_TYPES[dtype].computed, C_TYPES[dtype].suffix
    half, one = literal(0.5, dtype), literal(1, dtype)
    sides = []
    for axis, (place, length) in enumerate(
        zip(places[2:], body.dims(x.type.shape[2:]), strict=True)
    ):
        step = body.let(kind, "step", _step(node, body, axis))
        at = f"{step} * {place}"
        if not node["align_corners"]:
            at = f"fmax{suffix}({step} * ({place} + {half}) - {half}, {literal(0, dtype)})"
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
