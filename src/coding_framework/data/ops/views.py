"""Operations that compute nothing: elements of other tensors at other places, and tensors whose
elements follow from their places. ONE row an operation, under its ATen name.

A view says where in its argument `self` an element lies. A reader writes what gives the element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from coding_framework.data.graph import Node
from coding_framework.data.lower.text import (
    C_TYPES,
    Body,
    Places,
    atom,
    broadcast,
    literal,
    minus,
    over,
    plus,
    times,
)

View = Callable[[Node, Body, Places], list[str]]


def axis_of(
    node: Node, name: str = "dim", of: str = "self", more: int = 0, default: int = 0
) -> int:
    """An axis among a node's arguments, counted from the front."""
    rank = len(node[of].type.shape) + more
    return int(node.get(name, default)) % max(rank, 1)


def _permute(node: Node, body: Body, places: Places) -> list[str]:
    there = [""] * len(places)
    for here, axis in enumerate(node["dims"]):
        there[axis % len(places)] = places[here]
    return there


def _transpose(node: Node, body: Body, places: Places) -> list[str]:
    there = list(places)
    if there:
        one, other = axis_of(node, "dim0"), axis_of(node, "dim1")
        there[one], there[other] = there[other], there[one]
    return there


def _select(node: Node, body: Body, places: Places) -> list[str]:
    axis = axis_of(node)
    index = node["index"]
    extent = node["self"].type.shape[axis]
    at = body.extent(index if not _negative(index) else extent + index)
    return [*places[:axis], at, *places[axis:]]


def _slice(node: Node, body: Body, places: Places) -> list[str]:
    axis = axis_of(node)
    extent = node["self"].type.shape[axis]
    start = node.get("start", 0)
    start = extent + start if _negative(start) else start
    if isinstance(start, int) and isinstance(extent, int):
        start = max(0, min(start, extent))
    at = plus(times(places[axis], str(node.get("step", 1))), body.extent(start))
    return [*places[:axis], at, *places[axis + 1 :]]


def _negative(number: Any) -> bool:
    return bool(number < 0) if isinstance(number, int) else bool(number.could_extract_minus_sign())


def _flip(node: Node, body: Body, places: Places) -> list[str]:
    shape = node["self"].type.shape
    turned = {d % len(shape) for d in node["dims"]}
    return [
        minus(f"{body.extent(shape[k])} - 1", place) if k in turned else place
        for k, place in enumerate(places)
    ]


def _roll(node: Node, body: Body, places: Places) -> list[str]:
    shape = node["self"].type.shape
    there = list(places)
    for axis, shift in zip(node.get("dims") or [0], node["shifts"], strict=True):
        dim = body.extent(shape[axis % len(shape)])
        by = body.extent(shift % shape[axis % len(shape)])
        place = there[axis % len(shape)]
        there[axis % len(shape)] = f"({place} + {dim} - {atom(by)}) % {dim}"
    return there


def _repeat(node: Node, body: Body, places: Places) -> list[str]:
    shape = node["self"].type.shape
    behind = places[len(places) - len(shape) :]
    return [
        "0" if dim == 1 else place if times == 1 else f"{atom(place)} % {body.extent(dim)}"
        for dim, place, times in zip(
            shape, behind, node["repeats"][len(places) - len(shape) :], strict=True
        )
    ]


def _unfold(node: Node, body: Body, places: Places) -> list[str]:
    axis = axis_of(node, "dimension")
    at = plus(times(places[axis], body.extent(node["step"])), places[-1])
    return [*places[:axis], at, *places[axis + 1 : -1]]


def _diagonal(node: Node, body: Body, places: Places) -> list[str]:
    one, other = axis_of(node, "dim1"), axis_of(node, "dim2")
    by = node.get("offset", 0)
    rest = iter(places[:-1])
    along = places[-1]
    there = []
    for axis in range(len(node["self"].type.shape)):
        if axis == one:
            there.append(plus(along, str(max(0, -by))))
        elif axis == other:
            there.append(plus(along, str(max(0, by))))
        else:
            there.append(next(rest))
    return there


VIEWS: Mapping[str, View] = {
    "permute": _permute,
    "transpose": _transpose,
    "t": lambda node, body, places: list(reversed(places)),
    "expand": lambda node, body, places: broadcast(node["self"].type.shape, places),
    "select": _select,
    "slice": _slice,
    "flip": _flip,
    "roll": _roll,
    "repeat": _repeat,
    "unfold": _unfold,
    "diagonal": _diagonal,
}
RESHAPES = ("view", "_unsafe_view", "reshape", "flatten", "unflatten", "view_copy", "squeeze",
            "unsqueeze")  # fmt: skip
"""The same elements in the same order, in another shape."""


class Reads(Protocol):
    """What a reader writes with."""

    def read(self, node: Node, body: Body, places: Places) -> str:
        """The element of a tensor: a name or an expression."""
        ...


Reader = Callable[[Reads, Node, Body, Places], str]


Cases = Iterable[tuple[str, Node, Places]]
"""(condition, tensor, where in it)"""


def _one_of(reads: Reads, node: Node, body: Body, count: int, cases: Cases) -> str:
    """The element of the first of `count` tensors whose condition holds, of the last one else."""
    if count == 1:
        return next(reads.read(tensor, body, there) for _, tensor, there in cases)
    out = body.variable(C_TYPES[node.type.dtype].computed, node.name)
    for number, (condition, tensor, there) in enumerate(cases):
        head = "else" if number else ""
        head += "" if number == count - 1 else f" if ({condition})"
        with body.block(head.strip()):
            body.line(f"{out} = {reads.read(tensor, body, there)};")
    return out


def _cat(reads: Reads, node: Node, body: Body, places: Places) -> str:
    tensors = [t for t in node["tensors"] if t.type.shape != (0,)]
    axis = int(node.get("dim", 0)) % len(node.type.shape)

    def cases() -> Cases:
        start = "0"
        for tensor in tensors:
            end = plus(start, body.extent(tensor.type.shape[axis]))
            there = [*places[:axis], minus(places[axis], start), *places[axis + 1 :]]
            yield f"{places[axis]} < {end}", tensor, there
            start = end

    return _one_of(reads, node, body, len(tensors), cases())


def _stack(reads: Reads, node: Node, body: Body, places: Places) -> str:
    axis = int(node.get("dim", 0)) % len(node.type.shape)
    there, tensors = [*places[:axis], *places[axis + 1 :]], node["tensors"]
    cases = [(f"{places[axis]} == {n}", t, there) for n, t in enumerate(tensors)]
    return _one_of(reads, node, body, len(tensors), cases)


def _pad(reads: Reads, node: Node, body: Body, places: Places) -> str:
    shape = node["self"].type.shape
    there, inside = list(places), []
    for k, (before, after) in enumerate(zip(node["pad"][::2], node["pad"][1::2], strict=True)):
        axis = len(shape) - 1 - k
        if before == 0 and after == 0:
            continue
        by = body.extent(before)
        there[axis] = body.let("int", f"{node.name}_{axis}", minus(places[axis], by))
        inside.append(f"{there[axis]} >= 0 && {there[axis]} < {body.extent(shape[axis])}")
    if not inside:
        return reads.read(node["self"], body, places)
    value = literal(node.get("value", 0.0), node.type.dtype)
    out = body.variable(C_TYPES[node.type.dtype].computed, node.name, value)
    with body.block(f"if ({' && '.join(inside)})"):
        body.line(f"{out} = {reads.read(node['self'], body, there)};")
    return out


def _index(reads: Reads, body: Body, of: Node, places: Places, extent: str, wish: str) -> str:
    """A whole number that a tensor holds, as a place of an axis: counted from behind where it is
    negative."""
    at = body.let("int", wish, f"(int){atom(reads.read(of, body, places))}")
    return body.let("int", wish, f"{at} < 0 ? {at} + {extent} : {at}")


def _gather(reads: Reads, node: Node, body: Body, places: Places) -> str:
    """`gather`, whose index has all axes, and `index_select`, whose has one."""
    axis = axis_of(node)
    there = places if node.base == "gather" else [places[axis]]
    at = body.let("int", "at", f"(int){atom(reads.read(node['index'], body, there))}")
    return reads.read(node["self"], body, [*places[:axis], at, *places[axis + 1 :]])


def _embedding(reads: Reads, node: Node, body: Body, places: Places) -> str:
    at = body.let("int", "row", f"(int){atom(reads.read(node['indices'], body, places[:-1]))}")
    return reads.read(node["weight"], body, [at, places[-1]])


def index_places(reads: Reads, node: Node, body: Body, places: Places) -> list[str]:
    """Where in `self` the element of `self[indices]` lies: the indices are broadcast together and
    stand where the first one does, or in front where others lie between them."""
    shape = node["self"].type.shape
    indices = [*node["indices"], *[None] * (len(shape) - len(node["indices"]))]
    named = [axis for axis, index in enumerate(indices) if index is not None]
    rank = max(len(indices[axis].type.shape) for axis in named)
    together = named == list(range(named[0], named[-1] + 1))
    first = named[0] if together else 0
    shared, rest = places[first : first + rank], [*places[:first], *places[first + rank :]]
    there, others = [], iter(rest)
    for axis, index in enumerate(indices):
        if index is None:
            there.append(next(others))
            continue
        at = broadcast(index.type.shape, shared)
        there.append(_index(reads, body, index, at, body.extent(shape[axis]), "at"))
    return there


def _index_tensor(reads: Reads, node: Node, body: Body, places: Places) -> str:
    return reads.read(node["self"], body, index_places(reads, node, body, places))


def _arange(reads: Reads, node: Node, body: Body, places: Places) -> str:
    start, step, dtype = node.get("start", 0), node.get("step", 1), node.type.dtype
    c_type = C_TYPES[dtype].computed
    at = f"({c_type}){atom(places[0])}"
    by = number(body, step, dtype)
    at = at if by in ("1", "1L", "1.0f") else f"{at} * {by}"
    from_ = number(body, start, dtype)
    return at if from_ in ("0", "0L", "0.0f") else f"{atom(at)} + {atom(from_)}"


def number(body: Body, value: Any, dtype: str) -> str:
    """A number, or a size, in the type that a dtype computes in."""
    if isinstance(value, (bool, int, float)):
        return literal(value, dtype)
    return f"({C_TYPES[dtype].computed}){body.extent(value)}"


def _full(name: str) -> Reader:
    return lambda reads, node, body, places: number(body, node[name], node.type.dtype)


def _constant(value: float) -> Reader:
    return lambda reads, node, body, places: literal(value, node.type.dtype)


def _triangle(sign: str) -> Reader:
    def read(reads: Reads, node: Node, body: Body, places: Places) -> str:
        row, column = places[-2:]
        value = reads.read(node["self"], body, places)
        zero = literal(0, node.type.dtype)
        by = body.extent(node.get("diagonal", 0))
        return f"{column} {sign} {plus(row, by)} ? {value} : {zero}"

    return read


def _eye(reads: Reads, node: Node, body: Body, places: Places) -> str:
    one, zero = literal(1, node.type.dtype), literal(0, node.type.dtype)
    return f"{places[0]} == {places[1]} ? {one} : {zero}"


def _select_scatter(reads: Reads, node: Node, body: Body, places: Places) -> str:
    axis = axis_of(node)
    index = node["index"]
    at = body.extent(index if not _negative(index) else node["self"].type.shape[axis] + index)
    there = [*places[:axis], *places[axis + 1 :]]
    cases = [(f"{places[axis]} == {at}", node["src"], there), ("", node["self"], places)]
    return _one_of(reads, node, body, 2, cases)


def _slice_scatter(reads: Reads, node: Node, body: Body, places: Places) -> str:
    axis = axis_of(node)
    extent = node["self"].type.shape[axis]
    start, end, step = node.get("start", 0), node.get("end", extent), node.get("step", 1)
    start = extent + start if _negative(start) else start
    end = extent if isinstance(end, int) and end > 1 << 60 else end
    end = extent + end if _negative(end) else end
    at = minus(places[axis], body.extent(start))
    inside = [f"{places[axis]} >= {body.extent(start)}", f"{places[axis]} < {body.extent(end)}"]
    if step != 1:
        inside.append(f"{atom(at)} % {step} == 0")
    there = [*places[:axis], over(at, str(step)), *places[axis + 1 :]]
    cases = [(" && ".join(inside), node["src"], there), ("", node["self"], places)]
    return _one_of(reads, node, body, 2, cases)


def _pixel_shuffle(reads: Reads, node: Node, body: Body, places: Places) -> str:
    r = str(node["upscale_factor"])
    *batch, channel, y, x = places
    inner = plus(times(f"{atom(y)} % {r}", r), f"{atom(x)} % {r}")
    there = plus(times(channel, f"{r} * {r}"), inner)
    return reads.read(node["self"], body, [*batch, there, over(y, r), over(x, r)])


def _repeat_interleave(reads: Reads, node: Node, body: Body, places: Places) -> str:
    axis = axis_of(node)
    at = over(places[axis], body.extent(node["repeats"]))
    return reads.read(node["self"], body, [*places[:axis], at, *places[axis + 1 :]])


def _frozen_norm(reads: Reads, node: Node, body: Body, places: Places) -> str:
    """A batch norm by the statistics that it was given."""
    suffix = C_TYPES[node.type.dtype].suffix

    def of_channel(name: str) -> str:
        return atom(reads.read(node[name], body, [places[1]]))

    x = atom(reads.read(node["input"], body, places))
    eps = literal(node["eps"], node.type.dtype)
    text = f"({x} - {of_channel('running_mean')})"
    text += f" * rsqrt{suffix}({of_channel('running_var')} + {eps})"
    if isinstance(node.get("weight"), Node):
        text += f" * {of_channel('weight')}"
    return f"{text} + {of_channel('bias')}" if isinstance(node.get("bias"), Node) else text


READERS: Mapping[str, Reader] = {
    "_native_batch_norm_legit_no_training": _frozen_norm,
    "cat": _cat,
    "stack": _stack,
    "constant_pad_nd": _pad,
    "gather": _gather,
    "index_select": _gather,
    "embedding": _embedding,
    "index": _index_tensor,
    "arange": _arange,
    "full": _full("fill_value"),
    "full_like": _full("fill_value"),
    "fill": _full("value"),
    "scalar_tensor": _full("s"),
    "zeros": _constant(0),
    "zeros_like": _constant(0),
    "new_zeros": _constant(0),
    "new_full": _full("fill_value"),
    "new_ones": _constant(1),
    "ones": _constant(1),
    "ones_like": _constant(1),
    "empty": _constant(0),
    "empty_like": _constant(0),
    "new_empty": _constant(0),
    "empty_permuted": _constant(0),
    "tril": _triangle("<="),
    "triu": _triangle(">="),
    "eye": _eye,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "pixel_shuffle": _pixel_shuffle,
    "repeat_interleave": _repeat_interleave,
}
PARTS: Mapping[str, str] = {
    "split_with_sizes": "split_sizes", "split": "split_size", "chunk": "chunks", "unbind": "",
}  # fmt: skip
"""Several views of one tensor. What is said of their lengths: they stand in the results' types."""
