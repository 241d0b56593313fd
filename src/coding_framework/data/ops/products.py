"""Sums of products as data: which places of the result are rows and which are columns, what is
summed over, and how both sides are read. Tiles are made from that, for matrix products, einsum and
convolutions alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coding_framework.data.graph import Extent, Node
from coding_framework.data.lower.text import (
    Body,
    Places,
    atom,
    broadcast,
    minus,
    over,
    plus,
    times,
)
from coding_framework.data.ops.contractions import added, factors_of, letters_of, steps_of
from coding_framework.data.ops.heads import quotient
from coding_framework.data.ops.views import Reads

Side = Callable[[Body, Places, Places, Places], str]
"""(body, place in the batch, place along the side, place in the sum) -> the element."""


def _as_it_is(body: Body, places: Places, total: str) -> str:
    return total


@dataclass(frozen=True, slots=True)
class Product:
    """A product, for each place of `batch`."""

    batch: tuple[Extent, ...]
    rows: tuple[Extent, ...]
    columns: tuple[Extent, ...]
    inner: tuple[Extent, ...]
    left: Side
    right: Side
    place: Callable[[Body, Places, Places, Places], list[str]]
    """(body, place in the batch, row, column) -> place in the result."""
    value: Callable[[Body, Places, str], str] = _as_it_is
    """Of a result, by its place and its sum."""


Maker = Callable[[Reads, Node], Product | None]
"""None: the node is no product of two sides."""


def _matrices(reads: Reads, node: Node) -> Product | None:
    """mm, bmm, addmm, baddbmm, and matmul of at least two axes each."""
    left, right = factors_of(node)
    one, other = left.type.shape, right.type.shape
    if min(len(one), len(other)) < 2:
        return None
    shared = len(other) > 2 or len(one) == 2
    batch = node.type.shape[:-2] if shared else ()
    rows = one[-2:-1] if shared else one[:-1]

    def of_left(body: Body, at: Places, row: Places, k: Places) -> str:
        there = broadcast(one[:-2], at) if shared else []
        return reads.read(left, body, [*there, *row, *k])

    def of_right(body: Body, at: Places, column: Places, k: Places) -> str:
        return reads.read(right, body, [*broadcast(other[:-2], at), *k, *column])

    return Product(
        batch, rows, other[-1:], one[-1:], of_left, of_right,
        lambda body, at, row, column: [*at, *row, *column],
        lambda body, places, total: added(reads, node, body, places, total),
    )  # fmt: skip


def _linear(reads: Reads, node: Node) -> Product | None:
    x, weight, bias = node["input"], node["weight"], node.get("bias")
    if len(weight.type.shape) < 2 or len(x.type.shape) < 2:
        return None

    def value(body: Body, places: Places, total: str) -> str:
        if bias is None:
            return total
        return f"{total} + {atom(reads.read(bias, body, broadcast(bias.type.shape, places)))}"

    return Product(
        (), x.type.shape[:-1], weight.type.shape[:1], x.type.shape[-1:],
        lambda body, at, row, k: reads.read(x, body, [*row, *k]),
        lambda body, at, column, k: reads.read(weight, body, [*column, *k]),
        lambda body, at, row, column: [*row, *column], value,
    )  # fmt: skip


def _einsum(reads: Reads, node: Node) -> Product | None:
    """Of two tensors without a letter that one of them has for itself and sums over."""
    tensors: Sequence[Node] = node["tensors"]
    parts, out = letters_of(node)
    if len(tensors) != 2 or any(len(set(p)) < len(p) for p in (*parts, out)):
        return None
    one, other = parts
    lengths: dict[str, Extent] = {}
    for letters, tensor in zip(parts, tensors, strict=True):
        for letter, size in zip(letters, tensor.type.shape, strict=True):
            if lengths.setdefault(letter, size) != size:
                return None
    summed = [c for c in one if c not in out]
    if (
        not summed
        or any(c not in other for c in summed)
        or any(c not in out and c not in one for c in other)
    ):
        return None  # fmt: skip
    batch = [c for c in out if c in one and c in other]
    rows = [c for c in out if c not in other]
    columns = [c for c in out if c not in one]

    def side(number: int, own: Sequence[str]) -> Side:
        def read(body: Body, at: Places, along: Places, k: Places) -> str:
            where = dict(zip((*batch, *own, *summed), (*at, *along, *k), strict=True))
            return reads.read(tensors[number], body, [where[c] for c in parts[number]])

        return read

    def place(body: Body, at: Places, row: Places, column: Places) -> list[str]:
        where = dict(zip((*batch, *rows, *columns), (*at, *row, *column), strict=True))
        return [where[c] for c in out]

    def sizes(letters: Sequence[str]) -> tuple[Extent, ...]:
        return tuple(lengths[c] for c in letters)

    return Product(
        sizes(batch), sizes(rows), sizes(columns), sizes(summed), side(0, rows), side(1, columns),
        place,
    )  # fmt: skip


def _convolution(reads: Reads, node: Node) -> Product | None:
    """Channels are rows and positions columns, so that neighbours in memory are neighbours; a group
    is a place of the batch."""
    x, weight, bias = node["input"], node["weight"], node.get("bias")
    lengths = x.type.shape[2:]
    groups, turned = node["groups"], bool(node["transposed"])
    many = groups != 1
    rows = weight.type.shape[1] if turned else weight.type.shape[0]
    channels = weight.type.shape[0] if turned else weight.type.shape[1]
    if many:
        rows, channels = (
            (rows, quotient(channels, groups)) if turned else (quotient(rows, groups), channels)
        )

    def of_group(body: Body, at: Places, count: Extent, place: str) -> str:
        return plus(times(at[0], body.extent(count)), place) if many else place

    def weights(body: Body, at: Places, row: Places, k: Places) -> str:
        channel, *taps = k
        if turned:
            return reads.read(weight, body, [of_group(body, at, channels, channel), *row, *taps])
        return reads.read(weight, body, [of_group(body, at, rows, row[0]), *k])

    def position(body: Body, at: Places, column: Places, k: Places) -> str:
        image, *there = column
        channel, *taps = k
        places, inside = [], []
        for axis, (place, tap) in enumerate(zip(there, taps, strict=True)):
            step, pad, apart = steps_of(node, body, axis)
            name, length = "yxz"[axis], body.extent(lengths[axis])
            if turned:
                here = body.let("int", name, minus(plus(place, pad), times(tap, apart)))
                inside.append(f"{here} >= 0")
                if step != "1":
                    inside.append(f"{here} % {step} == 0")
                    here = over(here, step)
                inside.append(f"{here} < {length}")
            else:
                here = plus(times(place, step), times(tap, apart))
                if pad != "0":
                    here = body.let("int", name, f"{here} - {pad}")
                    inside.append(f"{here} >= 0 && {here} < {length}")
            places.append(here)
        if inside:
            body.line(f"if (!({' && '.join(inside)})) return 0;")
        return reads.read(x, body, [image, of_group(body, at, channels, channel), *places])

    def value(body: Body, places: Places, total: str) -> str:
        return total if bias is None else f"{total} + {atom(reads.read(bias, body, [places[1]]))}"

    def place(body: Body, at: Places, row: Places, column: Places) -> list[str]:
        image, *there = column
        return [image, of_group(body, at, rows, row[0]), *there]

    shape = node.type.shape
    return Product(
        (groups,) if many else (), (rows,), (shape[0], *shape[2:]),
        (channels, *weight.type.shape[2:]), weights, position, place, value,
    )  # fmt: skip


PRODUCTS: Mapping[str, Maker] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "matmul"), _matrices),
    "linear": _linear,
    "einsum": _einsum,
    "convolution": _convolution,
}


def product_of(reads: Any, node: Node) -> Product | None:
    """The node as a product; None where it is none."""
    make = PRODUCTS.get(node.base)
    return make(reads, node) if make is not None else None
