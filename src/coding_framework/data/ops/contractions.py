"""Sums of products: matrix products, einsum, convolutions and transposed ones of one to three axes.

Each writes the loops of one output and gives the sum. It is accumulated in float for half types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from coding_framework.data.graph import Extent, Node
from coding_framework.data.lower.text import C_TYPES, Body, Places, atom, literal, plus, times
from coding_framework.data.ops.views import Reads


@contextmanager
def nest(body: Body, loops: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """Loops within each other: (name, count) of each."""
    with ExitStack() as stack:
        yield [stack.enter_context(body.loop(name, count)) for name, count in loops]


def _accumulator(body: Body, node: Node, start: str | None = None) -> str:
    dtype = node.type.dtype
    return body.variable(C_TYPES[dtype].computed, "sum", start or literal(0, dtype))


def broadcast(shape: Sequence[Extent], places: Places) -> list[str]:
    """Places of a smaller tensor in the places of a larger one."""
    behind = places[len(places) - len(shape) :]
    return ["0" if d == 1 else p for d, p in zip(shape, behind, strict=True)]


def _times(one: str, other: str) -> str:
    return f"{atom(one)} * {atom(other)}"


def product(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    """mm, bmm, addmm, baddbmm."""
    names = {"addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2")}
    left, right = (node[n] for n in names.get(node.base, ("self", "mat2")))
    *batch, row, column = places
    total = _accumulator(body, node)
    with body.loop("k", body.extent(left.type.shape[-1])) as k:
        one = reads.read(left, body, [*batch, row, k])
        other = reads.read(right, body, [*batch, k, column])
        body.line(f"{total} += {_times(one, other)};")
    if node.base not in names:
        return [total]
    dtype = node.type.dtype
    alpha, beta = node.get("alpha", 1), node.get("beta", 1)
    value = total if alpha == 1 else f"{literal(alpha, dtype)} * {total}"
    if beta == 0:
        return [value]
    added = reads.read(node["self"], body, broadcast(node["self"].type.shape, places))
    added = atom(added) if beta == 1 else f"{literal(beta, dtype)} * {atom(added)}"
    return [f"{value} + {added}"]


def matmul(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    """Vectors, matrices and batches of them, which are broadcast."""
    left, right = list(node.inputs)
    rank, other_rank = len(left.type.shape), len(right.type.shape)
    rest = list(places)
    column = [rest.pop()] if other_rank > 1 else []
    row = [rest.pop()] if rank > 1 else []

    def batch(of: Node) -> list[str]:
        return broadcast(of.type.shape[:-2], rest)

    total = _accumulator(body, node)
    with body.loop("k", body.extent(left.type.shape[-1])) as k:
        one = reads.read(left, body, [*batch(left), *row, k])
        there = [*batch(right), k, *column] if other_rank > 1 else [k]
        body.line(f"{total} += {_times(one, reads.read(right, body, there))};")
    return [total]


def linear(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, weight = node["input"], node["weight"]
    bias = node.get("bias")
    column = [places[-1]] if len(weight.type.shape) > 1 else []
    row = list(places[: len(x.type.shape) - 1])
    start = reads.read(bias, body, broadcast(bias.type.shape, column)) if bias is not None else None
    total = _accumulator(body, node, start)
    with body.loop("k", body.extent(x.type.shape[-1])) as k:
        one = reads.read(x, body, [*row, k])
        body.line(f"{total} += {_times(one, reads.read(weight, body, [*column, k]))};")
    return [total]


def bilinear(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    one, other, weight, bias = (node.get(n) for n in ("input1", "input2", "weight", "bias"))
    *row, column = places
    start = reads.read(bias, body, [column]) if bias is not None else None
    total = _accumulator(body, node, start)
    with body.loop("j", body.extent(one.type.shape[-1])) as j:
        left = body.let("float", "left", reads.read(one, body, [*row, j]))
        with body.loop("k", body.extent(other.type.shape[-1])) as k:
            right = _times(
                reads.read(other, body, [*row, k]), reads.read(weight, body, [column, j, k])
            )
            body.line(f"{total} += {left} * {right};")
    return [total]


def einsum(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    """Letters of the output are places, the others are summed over. Ellipses stand for the axes
    that are left."""
    tensors = node["tensors"]
    parts, out = letters_of(node)
    at = dict(zip(out, places, strict=True))
    lengths: dict[str, str] = {}
    for letters, tensor in zip(parts, tensors, strict=True):
        for letter, size in zip(letters, tensor.type.shape, strict=True):
            if size != 1 or letter not in lengths:
                lengths[letter] = body.extent(size)
    summed = [c for c in dict.fromkeys("".join(parts)) if c not in at]
    total = _accumulator(body, node)
    with nest(body, [(c, lengths[c]) for c in summed]) as names:
        at |= dict(zip(summed, names, strict=True))
        factors = []
        for letters, tensor in zip(parts, tensors, strict=True):
            pairs = zip(letters, tensor.type.shape, strict=True)
            there = ["0" if size == 1 else at[c] for c, size in pairs]
            factors.append(atom(reads.read(tensor, body, there)))
        body.line(f"{total} += {' * '.join(factors)};")
    return [total]


def letters_of(node: Node) -> tuple[list[str], str]:
    """Of an einsum: the letters of each tensor's axes, and those of the result."""
    tensors = node["tensors"]
    terms, _, result = node["equation"].replace(" ", "").partition("->")
    parts = _without_ellipsis(terms.split(","), tensors)
    if "->" in node["equation"]:
        return parts, _without_ellipsis([result], [node])[0]
    letters = "".join(parts)
    return parts, "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)


def _without_ellipsis(terms: Sequence[str], tensors: Sequence[Node]) -> list[str]:
    """Its axes get capital letters, counted from the last, as they are broadcast."""
    used = "".join(terms)
    free = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in used]
    found = []
    for term, tensor in zip(terms, tensors, strict=True):
        count = len(tensor.type.shape) - len(term.replace("...", ""))
        found.append(term.replace("...", "".join(reversed(free[:count]))))
    return found


def option(values: Any, axis: int) -> Any:
    """An option of a convolution for one axis: one number may stand for all."""
    return values[axis] if len(values) > 1 else values[0]


def convolution(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    return (_transposed if node["transposed"] else _convolution)(reads, node, body, places)


def _convolution(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, weight, bias = node["input"], node["weight"], node.get("bias")
    image, channel, *there = places
    start = reads.read(bias, body, [channel]) if bias is not None else None
    total = _accumulator(body, node, start)
    per_group, *sides = body.dims(weight.type.shape[1:])
    lengths = body.dims(x.type.shape[2:])
    base = "0"
    if node["groups"] != 1:
        outputs = body.dims(node.type.shape)[1]
        of_group = f"{outputs} / {body.extent(node['groups'])}"
        group = channel if of_group == "1" else f"{channel} / ({of_group})"
        base = body.let("int", "first", times(group, per_group))
    with ExitStack() as stack:
        taps, at = [], []
        for axis, (place, side, length) in enumerate(zip(there, sides, lengths, strict=True)):
            tap = stack.enter_context(body.loop("pqr"[axis], side))
            step, pad, apart = (
                body.extent(option(node[name], axis)) for name in ("stride", "padding", "dilation")
            )
            here = plus(times(place, step), times(tap, apart))
            if pad != "0":
                here = body.let("int", "yxz"[axis], f"{here} - {pad}")
                _within(stack, body, f"{here} >= 0 && {here} < {length}", side)
            taps.append(tap)
            at.append(here)
        c = stack.enter_context(body.loop("c", per_group))
        one = reads.read(x, body, [image, plus(base, c), *at])
        body.line(f"{total} += {_times(one, reads.read(weight, body, [channel, c, *taps]))};")
    return [total]


def _within(stack: ExitStack, body: Body, condition: str, side: str) -> None:
    """Go on with the next tap unless the condition holds; one tap alone has no loop."""
    if side == "1":
        stack.enter_context(body.block(f"if ({condition})"))
    else:
        body.line(f"if (!({condition})) continue;")


def _transposed(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    x, weight, bias = node["input"], node["weight"], node.get("bias")
    image, channel, *there = places
    start = reads.read(bias, body, [channel]) if bias is not None else None
    total = _accumulator(body, node, start)
    of_group, *sides = body.dims(weight.type.shape[1:])
    channels, *lengths = body.dims(x.type.shape[1:])
    first, count, column = "0", channels, channel
    if node["groups"] != 1:
        groups = body.extent(node["groups"])
        count = body.let("int", "count", f"{channels} / {groups}")
        group = body.let("int", "group", channel if of_group == "1" else f"{channel} / {of_group}")
        first = body.let("int", "first", times(group, count))
        column = "0" if of_group == "1" else f"{channel} % {of_group}"
    with ExitStack() as stack:
        taps, at = [], []
        for axis, (place, side, length) in enumerate(zip(there, sides, lengths, strict=True)):
            step, pad, apart = (
                body.extent(option(node[name], axis)) for name in ("stride", "padding", "dilation")
            )
            begin = body.let("int", "from", plus(place, pad) if pad != "0" else place)
            if step != "1" and apart == "1":  # only taps that meet an input
                meets = f"{begin} % {step}"
                tap = stack.enter_context(body.loop("pqr"[axis], side, start=meets, step=step))
                here = body.let("int", "yxz"[axis], f"({begin} - {tap}) / {step}")
                body.line(f"if ({tap} > {begin} || {here} >= {length}) continue;")
            else:
                tap = stack.enter_context(body.loop("pqr"[axis], side))
                begin = body.let("int", "from", f"{begin} - {atom(times(tap, apart))}")
                here, inside = begin, f"{begin} >= 0 && {begin} < {length}"
                if step != "1":
                    here = body.let("int", "yxz"[axis], f"{begin} / {step}")
                    inside = f"{begin} >= 0 && {begin} % {step} == 0 && {here} < {length}"
                _within(stack, body, inside, side)
            taps.append(tap)
            at.append(here)
        c = stack.enter_context(body.loop("c", count))
        from_channel = plus(first, c)
        one = reads.read(x, body, [image, from_channel, *at])
        other = reads.read(weight, body, [from_channel, column, *taps])
        body.line(f"{total} += {_times(one, other)};")
    return [total]
