"""Sums of products: matrix products, einsum, convolutions and transposed ones of one to three axes.

Each writes the loops of a thread's outputs, whose axis `shared_axis` says, and how one follows
from its sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from coding_framework.data.graph import Node
from coding_framework.data.lower.text import (
    C_TYPES,
    Body,
    Places,
    atom,
    broadcast,
    literal,
    plus,
    times,
)
from coding_framework.data.ops.views import Reads

TOGETHER = 4
"""Outputs of a thread, where they share what they read."""


@contextmanager
def nest(body: Body, loops: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """Loops within each other: (name, count) of each."""
    with ExitStack() as stack:
        yield [stack.enter_context(body.loop(name, count)) for name, count in loops]


class Sums:
    """The sums of a thread: of the output at `places`, or of several, next to each other along an
    axis, which share one operand. They are accumulated in float for half types."""

    def __init__(
        self, reads: Reads, node: Node, body: Body, places: Places, axis: int | None
    ) -> None:
        """places: on `axis` that of the first output."""
        self.node, self.body, self.reads = node, body, reads
        self.places, self.axis = list(places), axis

    def start(self, value: Callable[[list[str]], str] | None = None) -> None:
        """Declare them. value: what each begins with, by its places."""
        dtype = self.node.type.dtype
        kind, zero = C_TYPES[dtype].computed, literal(0, dtype)
        if self.axis is None:
            self.total = self.body.variable(kind, "sum", value(self.places) if value else zero)
            return
        self.total = self.body.name("sum")
        self.body.line(f"{kind} {self.total}[{TOGETHER}];")
        with self.each() as (places, total):
            self.body.line(f"{total} = {value(places) if value else zero};")

    @contextmanager
    def each(self, inside: bool = False) -> Iterator[tuple[list[str], str]]:
        """The places of each output, and its sum. inside: those beyond the end are left out, which
        else repeat the last."""
        if self.axis is None:
            yield self.places, self.total
            return
        body = self.body
        extent = body.extent(self.node.type.shape[self.axis])
        t = body.name("t")
        body.line("#pragma unroll")
        with body.block(f"for (int {t} = 0; {t} < {TOGETHER}; {t}++)"), ExitStack() as stack:
            at = plus(self.places[self.axis], t)
            if inside:
                stack.enter_context(body.block(f"if ({at} < {extent})"))
            else:
                at = f"min({at}, {extent} - 1)"
            own = body.let("int", "own", at)
            places = [own if a == self.axis else p for a, p in enumerate(self.places)]
            yield places, f"{self.total}[{t}]"

    def add(self, shared: str, other: Callable[[list[str]], str]) -> None:
        """Add to each the product of what they share and of what is read at its places."""
        if self.axis is not None and not shared.isidentifier():
            shared = self.body.let(C_TYPES[self.node.type.dtype].computed, "x", shared)
        with self.each() as (places, total):
            self.body.line(f"{total} += {atom(shared)} * {atom(other(places))};")


Value = Callable[[Places, str], str]
"""(the places of an output, its sum) -> the output."""


def the_sum(places: Places, total: str) -> str:
    return total


def product(sums: Sums) -> Value:
    """mm, bmm, addmm, baddbmm."""
    reads, node, body = sums.reads, sums.node, sums.body
    left, right = factors_of(node)
    *batch, row, _ = sums.places
    sums.start()
    with body.loop("k", body.extent(left.type.shape[-1])) as k:
        one = reads.read(left, body, [*batch, row, k])
        sums.add(one, lambda at: reads.read(right, body, [*batch, k, at[-1]]))
    return lambda places, total: added(reads, node, body, places, total)


def factors_of(node: Node) -> list[Node]:
    """Of a product of matrices."""
    names = {"addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"),
             "matmul": ("self", "other")}  # fmt: skip
    return [node[name] for name in names.get(node.base, ("self", "mat2"))]


def added(reads: Reads, node: Node, body: Body, places: Places, total: str) -> str:
    """What a product of matrices gives: the sum, or more where it adds a tensor to it."""
    if node.base not in ("addmm", "baddbmm"):
        return total
    own, dtype = node["self"], node.type.dtype
    alpha, beta = node.get("alpha", 1), node.get("beta", 1)
    value = total if alpha == 1 else f"{literal(alpha, dtype)} * {total}"
    if beta == 0:
        return value
    more = atom(reads.read(own, body, broadcast(own.type.shape, places)))
    return f"{value} + {more if beta == 1 else f'{literal(beta, dtype)} * {more}'}"


def matmul(sums: Sums) -> Value:
    """Vectors, matrices and batches of them, which are broadcast."""
    reads, node, body = sums.reads, sums.node, sums.body
    left, right = list(node.inputs)
    rank, other_rank = len(left.type.shape), len(right.type.shape)
    rest = sums.places[: len(sums.places) - (other_rank > 1)]
    row = [rest.pop()] if rank > 1 else []

    def batch(of: Node) -> list[str]:
        return broadcast(of.type.shape[:-2], rest)

    sums.start()
    with body.loop("k", body.extent(left.type.shape[-1])) as k:
        one = reads.read(left, body, [*batch(left), *row, k])

        def other(at: list[str]) -> str:
            return reads.read(right, body, [*batch(right), k, at[-1]] if other_rank > 1 else [k])

        sums.add(one, other)
    return the_sum


def linear(sums: Sums) -> Value:
    reads, node, body = sums.reads, sums.node, sums.body
    x, weight, bias = node["input"], node["weight"], node.get("bias")

    def column(at: list[str]) -> list[str]:
        return at[-1:] if len(weight.type.shape) > 1 else []

    row = sums.places[: len(x.type.shape) - 1]
    sums.start(
        None
        if bias is None
        else lambda at: reads.read(bias, body, broadcast(bias.type.shape, column(at)))
    )
    with body.loop("k", body.extent(x.type.shape[-1])) as k:
        one = reads.read(x, body, [*row, k])
        sums.add(one, lambda at: reads.read(weight, body, [*column(at), k]))
    return the_sum


def bilinear(sums: Sums) -> Value:
    reads, node, body = sums.reads, sums.node, sums.body
    one, other, weight, bias = (node.get(n) for n in ("input1", "input2", "weight", "bias"))
    *row, column = sums.places
    sums.start(None if bias is None else lambda at: reads.read(bias, body, [column]))
    with body.loop("j", body.extent(one.type.shape[-1])) as j:
        left = body.let("float", "left", reads.read(one, body, [*row, j]))
        with body.loop("k", body.extent(other.type.shape[-1])) as k:
            right = body.let("float", "right", reads.read(other, body, [*row, k]))
            sums.add(f"{left} * {right}", lambda at: reads.read(weight, body, [column, j, k]))
    return the_sum


def einsum(sums: Sums) -> Value:
    """Letters of the output are places, the others are summed over. Ellipses stand for the axes
    that are left."""
    reads, node, body = sums.reads, sums.node, sums.body
    tensors = node["tensors"]
    parts, out = letters_of(node)
    at = dict(zip(out, sums.places, strict=True))
    lengths: dict[str, str] = {}
    for letters, tensor in zip(parts, tensors, strict=True):
        for letter, size in zip(letters, tensor.type.shape, strict=True):
            if size != 1 or letter not in lengths:
                lengths[letter] = body.extent(size)
    summed = [c for c in dict.fromkeys("".join(parts)) if c not in at]
    sums.start()
    with nest(body, [(c, lengths[c]) for c in summed]) as names:
        at |= dict(zip(summed, names, strict=True))
        factors = []
        for letters, tensor in zip(parts, tensors, strict=True):
            pairs = zip(letters, tensor.type.shape, strict=True)
            there = ["0" if size == 1 else at[c] for c, size in pairs]
            factors.append(atom(reads.read(tensor, body, there)))
        body.line(f"{sums.total} += {' * '.join(factors)};")
    return the_sum


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


def steps_of(node: Node, body: Body, axis: int) -> tuple[str, str, str]:
    """Stride, padding and dilation of a convolution along an axis: one number may stand for all."""
    options = (node[name] for name in ("stride", "padding", "dilation"))
    step, pad, apart = (body.extent(o[axis] if len(o) > 1 else o[0]) for o in options)
    return step, pad, apart


def convolution(sums: Sums) -> Value:
    reads, node, body = sums.reads, sums.node, sums.body
    bias = node.get("bias")
    sums.start(None if bias is None else lambda at: reads.read(bias, body, [at[1]]))
    (_transposed if node["transposed"] else _convolution)(sums, reads, node, body)
    return the_sum


def _convolution(sums: Sums, reads: Reads, node: Node, body: Body) -> None:
    x, weight = node["input"], node["weight"]
    image, channel, *there = sums.places
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
            step, pad, apart = steps_of(node, body, axis)
            here = plus(times(place, step), times(tap, apart))
            if pad != "0":
                here = body.let("int", "yxz"[axis], f"{here} - {pad}")
                _within(stack, body, f"{here} >= 0 && {here} < {length}", side)
            taps.append(tap)
            at.append(here)
        c = stack.enter_context(body.loop("c", per_group))
        one = reads.read(x, body, [image, plus(base, c), *at])
        sums.add(one, lambda out: reads.read(weight, body, [out[1], c, *taps]))


def _within(stack: ExitStack, body: Body, condition: str, side: str) -> None:
    """Go on with the next tap unless the condition holds; one tap alone has no loop."""
    if side == "1":
        stack.enter_context(body.block(f"if ({condition})"))
    else:
        body.line(f"if (!({condition})) continue;")


def _transposed(sums: Sums, reads: Reads, node: Node, body: Body) -> None:
    x, weight = node["input"], node["weight"]
    image, channel, *there = sums.places
    grouped = node["groups"] != 1
    of_group, *sides = body.dims(weight.type.shape[1:])
    channels, *lengths = body.dims(x.type.shape[1:])
    first, count, column = "0", channels, ""
    if grouped:
        groups = body.extent(node["groups"])
        count = body.let("int", "count", f"{channels} / {groups}")
        group = body.let("int", "group", channel if of_group == "1" else f"{channel} / {of_group}")
        first = body.let("int", "first", times(group, count))
        column = "0" if of_group == "1" else f"{channel} % {of_group}"
    with ExitStack() as stack:
        taps, at = [], []
        for axis, (place, side, length) in enumerate(zip(there, sides, lengths, strict=True)):
            step, pad, apart = steps_of(node, body, axis)
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
        sums.add(
            one,
            lambda out: reads.read(
                weight, body, [from_channel, column if grouped else out[1], *taps]
            ),
        )


def shared_axis(node: Node) -> int | None:
    """The axis along which outputs next to each other read the same of one operand."""
    if node.base == "convolution":
        return 1 if node["groups"] == 1 else None
    if node.base in ("einsum", "bilinear"):
        return None
    weight = list(node.inputs)[-1] if node.base == "matmul" else node.get("weight")
    alone = weight is not None and len(weight.type.shape) < 2
    return None if alone or not node.type.shape else len(node.type.shape) - 1
