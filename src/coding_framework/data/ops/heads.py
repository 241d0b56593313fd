"""Operations that loop: ONE row an operation, under its ATen name.

A row of `ROWS` says how a row of elements becomes one value or another row: in passes over the
elements, each with what it begins with and how it takes the next element. That is data, which a
thread, a warp or a block can carry out. A row of `LOOPS` writes the loops of one output itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from coding_framework.data.graph import Extent, Node
from coding_framework.data.lower.text import Body, Places, atom, plus, times
from coding_framework.data.ops import contractions, scans, windows
from coding_framework.data.ops.views import Reads, axis_of, number


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over the elements of a row.

    `step` is the accumulator's next value, of its name, the element {x} and what earlier passes
    found; `join` that of two threads' accumulators, {a} and {b}; `end` what is kept of it, {n} is
    the number of elements.
    """

    name: str
    start: str
    step: str
    join: str = "{a} + {b}"
    end: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the elements of a tensor lie in rows."""

    rows: tuple[Extent, ...]
    """Of the kernel: one row for each place of them."""
    inner: tuple[Extent, ...]
    """Of the elements of a row."""
    place: Callable[[Body, Places, Places], list[str]]
    """(body, place of the row, place in it) -> place in the tensor."""


@dataclass(frozen=True, slots=True)
class Row:
    """A head whose passes are data. One of `result` and `element` says what comes of a row."""

    layout: Callable[[Node], Layout]
    passes: Callable[[Node], tuple[Pass, ...]]
    result: str = ""
    """Of the whole row, of what the passes found."""
    element: Callable[[Reads, Node, Body, Places], str] | None = None
    """Of each element {x}, of what the passes found: the template, in which what it reads at the
    element's place stands."""
    of: str = "self"
    """The argument whose elements are walked over."""


SUM = Pass("total", "0", "{total} + {x}")
MOST = Pass("most", "-INFINITY", "fmax{f}({most}, {x})", "fmax{f}({a}, {b})")
LEAST = Pass("least", "INFINITY", "fmin{f}({least}, {x})", "fmin{f}({a}, {b})")
MEAN = Pass("mean", "0", "{mean} + {x}", end="{mean} / {n}")
DEVIATION = Pass("squares", "0", "{squares} + ({x} - {mean}) * ({x} - {mean})")


def reduced_axes(node: Node) -> tuple[int, ...]:
    """Those that a reduction goes over: all where none is named."""
    rank = len(node["self"].type.shape)
    dims = node.get("dim", node.get("dims"))
    named = [dims] if isinstance(dims, int) else dims or range(rank)
    return tuple(sorted({d % rank for d in named})) if rank else ()


def over_axes(axes: Sequence[int], shape: Sequence[Extent], keepdim: bool) -> Layout:
    """Rows along some axes of a tensor."""
    kept = [a for a in range(len(shape)) if a not in axes]
    rows = tuple(
        1 if a in axes else shape[a] for a in range(len(shape)) if keepdim or a not in axes
    )

    def place(body: Body, row: Places, inner: Places) -> list[str]:
        there = [""] * len(shape)
        for axis, at in zip(axes, inner, strict=True):
            there[axis] = at
        for k, axis in enumerate(kept):
            there[axis] = row[axis if keepdim else k]
        return there

    return Layout(rows, tuple(shape[a] for a in axes), place)


def _reduced(node: Node) -> Layout:
    keepdim = bool(node.get("keepdim", False)) and bool(node["self"].type.shape)
    return over_axes(reduced_axes(node), node["self"].type.shape, keepdim)


def _reduction(*passes: Pass, result: str = "") -> Row:
    return Row(_reduced, lambda node: passes, result or f"{{{passes[-1].name}}}")


def _along(node: Node) -> Layout:
    """Rows along one axis, of which each element gives one."""
    return over_axes((axis_of(node),), node["self"].type.shape, keepdim=True)


def _each(template: str) -> Callable[[Reads, Node, Body, Places], str]:
    return lambda reads, node, body, places: template


_EXPONENTIALS = Pass("total", "0", "{total} + exp{f}({x} - {most})")


def _vector_norm(node: Node) -> tuple[Pass, ...]:
    order = node.get("ord", node.get("p", 2))
    if order == 2:
        return (Pass("norm", "0", "{norm} + {x} * {x}", end="sqrt{f}({norm})"),)
    if order == 1:
        return (Pass("norm", "0", "{norm} + fabs{f}({x})"),)
    if order == float("inf"):
        return (Pass("norm", "0", "fmax{f}({norm}, fabs{f}({x}))", "fmax{f}({a}, {b})"),)
    if order == float("-inf"):
        return (Pass("norm", "INFINITY", "fmin{f}({norm}, fabs{f}({x}))", "fmin{f}({a}, {b})"),)
    if order == 0:
        return (Pass("norm", "0", "{norm} + ({x} != 0)"),)
    by = f"{float(order)!r}{{f}}"
    return (
        Pass("norm", "0", f"{{norm}} + pow{{f}}(fabs{{f}}({{x}}), {by})",
             end=f"pow{{f}}({{norm}}, 1.0{{f}} / {by})"),
    )  # fmt: skip


def _variance(root: bool) -> Callable[[Node], tuple[Pass, ...]]:
    def passes(node: Node) -> tuple[Pass, ...]:
        correction = node.get("correction", 1)
        value = f"{{squares}} / ({{n}} - {float(correction)!r}{{f}})"
        end = f"sqrt{{f}}({value})" if root else value
        return MEAN, Pass("squares", "0", DEVIATION.step, end=end)

    return passes


def _norm(
    scale_end: str = "rsqrt{f}({squares} / {n} + {eps})",
) -> Callable[[Node], tuple[Pass, ...]]:
    return lambda node: (MEAN, Pass("squares", "0", DEVIATION.step, end=scale_end))


def _scaled(places_of: Callable[[Node, Body, Places], list[str]]) -> Any:
    """The element of a norm, times a weight and with a bias where there are any."""

    def element(reads: Reads, node: Node, body: Body, places: Places) -> str:
        text = "({x} - {mean}) * {squares}"
        at = places_of(node, body, places)
        if isinstance(node.get("weight"), Node):
            text = f"{text} * {atom(reads.read(node['weight'], body, at))}"
        if isinstance(node.get("bias"), Node):
            text = f"{text} + {atom(reads.read(node['bias'], body, at))}"
        return text

    return element


def _channel(node: Node, body: Body, places: Places) -> list[str]:
    return [places[1]]


def _last(node: Node, body: Body, places: Places) -> list[str]:
    return list(places[len(places) - len(node["normalized_shape"]) :])


def _over_last(node: Node) -> Layout:
    shape = node["input"].type.shape
    count = len(node["normalized_shape"])
    return over_axes(range(len(shape) - count, len(shape)), shape, keepdim=True)


def _over_batch(node: Node) -> Layout:
    """A row for each channel, over the batch and all positions."""
    shape = node["input"].type.shape
    return over_axes([0, *range(2, len(shape))], shape, keepdim=False)


def _over_positions(node: Node) -> Layout:
    shape = node["input"].type.shape
    return over_axes(range(2, len(shape)), shape, keepdim=False)


def _over_groups(node: Node) -> Layout:
    """A row for each group of channels of each image."""
    shape = node["input"].type.shape
    groups = node["num_groups"]
    channels = quotient(shape[1], groups)

    def place(body: Body, row: Places, inner: Places) -> list[str]:
        channel = plus(times(row[1], body.extent(channels)), inner[0])
        return [row[0], channel, *inner[1:]]

    return Layout((shape[0], groups), (channels, *shape[2:]), place)


def quotient(one: Extent, other: Extent) -> Extent:
    from torch.utils._sympy.functions import FloorDiv

    whole = isinstance(one, int) and isinstance(other, int)
    return one // other if whole else FloorDiv(one, other)


def _root_mean_square(reads: Reads, node: Node, body: Body, places: Places) -> str:
    text = "{x} * {squares}"
    if isinstance(node.get("weight"), Node):
        text = f"{text} * {atom(reads.read(node['weight'], body, _last(node, body, places)))}"
    return text


ROWS: Mapping[str, Row] = {
    "sum": _reduction(SUM),
    "mean": _reduction(MEAN),
    "amax": _reduction(MOST),
    "amin": _reduction(LEAST),
    "prod": _reduction(Pass("product", "1", "{product} * {x}", "{a} * {b}")),
    "any": _reduction(Pass("found", "false", "{found} || {x}", "{a} || {b}")),
    "all": _reduction(Pass("found", "true", "{found} && {x}", "{a} && {b}")),
    "linalg_vector_norm": Row(_reduced, _vector_norm, "{norm}"),
    "norm": Row(_reduced, _vector_norm, "{norm}"),
    "var": Row(_reduced, _variance(False), "{squares}"),
    "std": Row(_reduced, _variance(True), "{squares}"),
    "logsumexp": _reduction(MOST, _EXPONENTIALS, result="{most} + log{f}({total})"),
    "_softmax": Row(_along, lambda node: (MOST, _EXPONENTIALS),
                    element=_each("exp{f}({x} - {most}) / {total}")),
    "_safe_softmax": Row(_along, lambda node: (MOST, _EXPONENTIALS),
                         element=_each("{most} == -INFINITY ? 0.0{f} : "
                                       "exp{f}({x} - {most}) / {total}")),
    "_log_softmax": Row(_along, lambda node: (MOST, _EXPONENTIALS),
                        element=_each("{x} - {most} - log{f}({total})")),
    "layer_norm": Row(_over_last, _norm(), element=_scaled(_last), of="input"),
    "rms_norm": Row(_over_last, lambda node: (Pass("squares", "0", "{squares} + {x} * {x}",
                    end="rsqrt{f}({squares} / {n} + {eps})"),),
                    element=_root_mean_square, of="input"),
    "group_norm": Row(_over_groups, _norm(), element=_scaled(_channel), of="input"),
    "instance_norm": Row(_over_positions, _norm(), element=_scaled(_channel), of="input"),
    "_native_batch_norm_legit": Row(_over_batch, _norm(), element=_scaled(_channel), of="input"),
    "_native_batch_norm_legit_functional": Row(_over_batch, _norm(), element=_scaled(_channel),
                                               of="input"),
}  # fmt: skip
ALSO_CALLED = {"softmax": "_softmax", "log_softmax": "_log_softmax"}
"""Other names of rows, of which `dtype` may be another than the argument's."""


def walks_of(head: Node) -> int:
    """How many times a row's elements are walked over; a scan's are once."""
    row = ROWS.get(ALSO_CALLED.get(head.base, head.base))
    return 1 if row is None else len(row.passes(head)) + (row.element is not None)


@dataclass(frozen=True, slots=True)
class Loop:
    """A head that writes the loops of one output itself."""

    values: Callable[[Reads, Node, Body, Places], Sequence[str]]
    """The results of the node at a place, in C."""
    operands: tuple[str, ...] = ("self",)
    """Arguments that it reads more than once: what is costly to make is put in memory before."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """A head that sums products: it writes the loops of a thread's outputs, of which `Sums` holds
    as many as share an operand."""

    sums: Callable[[contractions.Sums], contractions.Value]
    operands: tuple[str, ...]


def _best(sign: str) -> Callable[[Reads, Node, Body, Places], Sequence[str]]:
    """The extreme element along an axis, and where the first of them is."""

    def values(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
        from coding_framework.data.lower.text import C_TYPES

        shape = node["self"].type.shape
        kind = C_TYPES[node["self"].type.dtype].computed
        whole = node.get("dim") is None
        layout = over_axes(
            tuple(range(len(shape))) if whole else (axis_of(node),) if shape else (), shape,
            bool(node.get("keepdim", False)) and bool(shape) and not whole,
        )  # fmt: skip
        best = body.variable(kind, "best", number(body, 0, node["self"].type.dtype))
        at = body.variable("int", "at", "-1")
        dims = body.dims(layout.inner)
        with contractions.nest(body, [("r", d) for d in dims]) as inner:
            index = "0"
            for place, dim in zip(inner, dims, strict=True):
                index = plus(times(index, dim), place)
            text = reads.read(node["self"], body, layout.place(body, places, inner))
            x = body.let(kind, "x", text)
            nan = (
                f" || ({x} != {x} && {best} == {best})"
                if "float" in kind or kind == "double"
                else ""
            )
            with body.block(f"if ({at} < 0 || {x} {sign} {best}{nan})"):
                body.line(f"{best} = {x};")
                body.line(f"{at} = {index};")
        return [at] if node.base.startswith("arg") else [best, at]

    return values


def _scattered(reads: Reads, node: Node, body: Body, places: Places) -> Sequence[str]:
    """What an index says goes to a place: each place goes along the index, so that the order of a
    sum is always the same."""
    from coding_framework.data.lower.text import C_TYPES

    dtype = node.type.dtype
    axis = axis_of(node)
    how = node["reduce"]
    alone = not node.get("include_self", True)
    value = body.variable(C_TYPES[dtype].computed, "value", reads.read(node["self"], body, places))
    count = body.variable("int", "count", "0" if alone else "1")
    index = node["index"]
    beyond = [
        f"{place} < {body.extent(size)}"
        for k, (place, size) in enumerate(zip(places, index.type.shape, strict=True))
        if k != axis and size != node.type.shape[k]
    ]
    with ExitStack() as stack:
        if beyond:
            stack.enter_context(body.block(f"if ({' && '.join(beyond)})"))
        r = stack.enter_context(body.loop("r", body.extent(index.type.shape[axis])))
        there = [*places[:axis], r, *places[axis + 1 :]]
        at = reads.read(index, body, there)
        with body.block(f"if ({at} == {places[axis]})"):
            new = body.let(C_TYPES[dtype].computed, "next", reads.read(node["src"], body, there))
            joined = {
                "sum": f"{value} + {new}",
                "mean": f"{value} + {new}",
                "prod": f"{value} * {new}",
                "amax": f"max({value}, {new})",
                "amin": f"min({value}, {new})",
            }[how]
            if alone:
                joined = f"{count} == 0 ? {new} : {joined}"
            body.line(f"{value} = {joined};")
            body.line(f"{count}++;")
    return [f"{value} / max({count}, 1)" if how == "mean" else value]


LOOPS: Mapping[str, Loop | Contraction] = {
    "scatter_reduce": Loop(_scattered, ("self", "index", "src")),
    "argmax": Loop(_best(">")),
    "argmin": Loop(_best("<")),
    "max": Loop(_best(">")),
    "min": Loop(_best("<")),
    "mm": Contraction(contractions.product, ("self", "mat2")),
    "bmm": Contraction(contractions.product, ("self", "mat2")),
    "matmul": Contraction(contractions.matmul, ("self", "other")),
    "mv": Contraction(contractions.matmul, ("self", "vec")),
    "dot": Contraction(contractions.matmul, ("self", "tensor")),
    "addmm": Contraction(contractions.product, ("mat1", "mat2")),
    "baddbmm": Contraction(contractions.product, ("batch1", "batch2")),
    "linear": Contraction(contractions.linear, ("input", "weight")),
    "bilinear": Contraction(contractions.bilinear, ("input1", "input2", "weight")),
    "einsum": Contraction(contractions.einsum, ("tensors",)),
    "convolution": Contraction(contractions.convolution, ("input", "weight")),
    "max_pool2d_with_indices": Loop(windows.max_pool),
    "max_pool3d_with_indices": Loop(windows.max_pool),
    "avg_pool1d": Loop(windows.avg_pool),
    "avg_pool2d": Loop(windows.avg_pool),
    "avg_pool3d": Loop(windows.avg_pool),
    "adaptive_avg_pool1d": Loop(windows.adaptive_avg_pool),
    "adaptive_avg_pool2d": Loop(windows.adaptive_avg_pool),
    "adaptive_avg_pool3d": Loop(windows.adaptive_avg_pool),
    "_adaptive_avg_pool2d": Loop(windows.adaptive_avg_pool),
    "_adaptive_avg_pool3d": Loop(windows.adaptive_avg_pool),
    "adaptive_max_pool2d": Loop(windows.adaptive_max_pool),
    "adaptive_max_pool3d": Loop(windows.adaptive_max_pool),
    "upsample_nearest2d": Loop(windows.nearest, ("input",)),
    "upsample_bilinear2d": Loop(windows.bilinear, ("input",)),
}  # fmt: skip
SCANS = scans.SCANS
