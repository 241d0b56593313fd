"""The families of level 1: layers, and functions of tensors.

Each gives every draft of its grid of arguments; `catalog` leaves out what KernelBench has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import Any

from coding_framework.data.modules.operations import ELEMENTWISE
from coding_framework.data.modules.records import (
    Layout,
    ModuleDraft,
    ModuleInput,
    Operation,
    Value,
    op,
)
from drawing.sizes import (
    AXES,
    SPATIAL,
    AllSizes,
    conv_sizes,
    five,
    plain_sizes,
    sizes_of,
    with_sizes,
)

Drafts = Iterator[ModuleDraft]
BOTH = (True, False)


def tensor(
    name: str, rank: int, low: float | None = None, high: float | None = None
) -> ModuleInput:
    """An input whose axes have the usual names."""
    return ModuleInput(name, AXES[rank], low=low, high=high)


def tensor_draft(
    family: str,
    rank: int,
    *operations: Operation,
    inputs: tuple[ModuleInput, ...] = (),
    sizes: AllSizes | None = None,
    layout: Layout = "channels_first",
) -> ModuleDraft:
    """Operations on one tensor of that rank, or on `inputs`."""
    sizes = sizes or plain_sizes(rank, family + " ".join(o.key for o in operations))
    return ModuleDraft(family, 1, operations, inputs or (tensor("x", rank),), *sizes, layout=layout)


# --- convolutions and pooling --------------------------------------------------------------------


def conv_op(
    n: int, kernel: tuple[int, ...], *, stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0, dilation: int | tuple[int, ...] = 1, groups: int = 1,
    bias: bool = True, transposed: bool = False, output_padding: int = 0,
    out: str = "out_channels",
) -> Operation:  # fmt: skip
    """A convolution's operation, its arguments for each axis. groups: -1: one filter a channel."""

    def each(value: int | tuple[int, ...]) -> tuple[int, ...]:
        return value if isinstance(value, tuple) else (value,) * n

    more: dict[str, Value] = {"output_padding": each(output_padding)} if transposed else {}
    return op(
        f"conv{'_transpose' * transposed}{n}d", kernel_size=kernel, stride=each(stride),
        padding=each(padding), **more, dilation=each(dilation), groups=groups, bias=bias,
        out="in_channels" if groups < 0 else out,
    )  # fmt: skip


def conv_input(n: int) -> ModuleInput:
    """The input of a convolution."""
    return ModuleInput("x", ("batch_size", "in_channels", *SPATIAL[n]))


def conv_draft(family: str, n: int, o: Operation, *more: Operation) -> ModuleDraft:
    """A convolution of n axes, and what comes after it."""
    sizes = conv_sizes(o, n, f"{family}{o.key}")
    return ModuleDraft(family, 1, (o, *more), (conv_input(n),), *sizes)


def pool_op(
    kind: str, n: int, kernel: int, stride: int, padding: int = 0, **more: Value
) -> Operation:
    """A pooling's operation, alike along all axes. kind: max, avg or lp."""
    first = {"norm_type": more.pop("norm_type")} if kind == "lp" else {}
    usual: dict[str, dict[str, Value]] = {
        "max": {"dilation": 1, "ceil_mode": False}, "avg": {"count_include_pad": True},
    }  # fmt: skip
    return op(
        f"{kind}_pool{n}d", **first, kernel_size=(kernel,) * n, stride=(stride,) * n,
        padding=(padding,) * n, **{**usual.get(kind, {}), **more},
    )  # fmt: skip


def pool_draft(family: str, n: int, o: Operation, low: float | None = None) -> ModuleDraft:
    """Pooled extents: large enough for every window."""
    as_conv = conv_op(n, o["kernel_size"], stride=o["stride"], padding=o["padding"],
                      dilation=o.get("dilation", 1))  # fmt: skip
    given = replace(conv_input(n), low=low, high=None if low is None else 3.0)
    return ModuleDraft(family, 1, (o,), (given,), *conv_sizes(as_conv, n, f"{family}{o.key}"))


_KERNELS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((2,), (3,), (5,), (7,), (9,)),
    2: ((2, 2), (3, 3), (5, 5), (7, 7), (1, 3), (3, 5), (5, 2)),
    3: ((2, 2, 2), (3, 3, 3), (1, 3, 3), (3, 1, 2), (2, 3, 4)),
}
_PLACES = ((1, 1, 1), (2, 0, 1), (2, 1, 1), (1, 2, 2), (1, 0, 2), (3, 1, 1), (2, 2, 2), (1, 0, 3))
"""Stride, padding, dilation."""
_WINDOWS = ((2, 2), (2, 1), (3, 1), (3, 2), (3, 3), (4, 2), (5, 2), (5, 3))
"""Kernel size, stride."""


def _convolutions() -> Drafts:
    """Every kernel size with every stride, padding and dilation, grouped and not in turn; where the
    stride of a transposed one has room for it, with output padding."""
    for transposed, n in product((False, True), (1, 2, 3)):
        turn, groups = 0, (1, 2, 1, 4) if transposed else (1, 1, 2, 4)
        for kernel, place in _windows(_KERNELS[n], _PLACES, transposed):
            for bias in BOTH:
                o = conv_op(
                    n, kernel, **place, groups=groups[turn % 4], bias=bias, transposed=transposed,
                    output_padding=turn % 2 if transposed and place["stride"] > 1 else 0,
                )  # fmt: skip
                turn += 1
                yield conv_draft(f"{'transposed_' * transposed}convolution_{n}d", n, o)


def _windows(
    kernels: Sequence[tuple[int, ...]], places: Sequence[tuple[int, ...]], transposed: bool = False
) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    """Kernels with stride, padding and dilation, where the padding is within the window."""
    for kernel, (stride, padding, dilation) in product(kernels, places):
        if padding <= (dilation * (min(kernel) - 1) if transposed else min(kernel)):
            yield kernel, {"stride": stride, "padding": padding, "dilation": dilation}


def _channelwise() -> Drafts:
    """Depthwise convolutions; windows of one place; the first followed by the second. Some have a
    bias."""
    for n in (1, 2, 3):
        for kernel, place in _windows(_KERNELS[n][:4], _PLACES[:6]):
            bias = (place["stride"] + place["padding"] + n) % 2 == 0
            o = conv_op(n, kernel, **place, groups=-1, bias=bias)
            yield conv_draft("depthwise_convolution", n, o)
    for n, stride, groups, bias in product((1, 2, 3), (1, 2, 3), (1, 2, 4), BOTH):
        o = conv_op(n, (1,) * n, stride=stride, groups=groups, bias=bias)
        yield conv_draft("pointwise_convolution", n, o)
    for n in (1, 2, 3):
        for kernel, place in _windows(_KERNELS[n][1:4], _PLACES[:6]):
            bias = (place["stride"] + place["padding"]) % 2 == 0
            o = conv_op(n, kernel, **place, groups=-1, bias=bias)
            yield conv_draft("separable_convolution", n, o, conv_op(n, (1,) * n, bias=bias))


def _pools() -> Drafts:
    for n, (kernel, stride), padding, dilation in product((1, 2, 3), _WINDOWS, (0, 1), (1, 2)):
        ceil = (kernel + stride + padding + dilation) % 3 == 0
        o = pool_op("max", n, kernel, stride, padding, dilation=dilation, ceil_mode=ceil)
        yield pool_draft("max_pooling", n, o)
    for n, (kernel, stride), padding in product((1, 2, 3), _WINDOWS, (0, 1)):
        for counted in BOTH if padding else (True,):
            o = pool_op("avg", n, kernel, stride, padding, count_include_pad=counted)
            yield pool_draft("average_pooling", n, o)
    for n, (kernel, stride), p in product((1, 2), _WINDOWS, (1.0, 2.0, 3.0)):
        o = pool_op("lp", n, kernel, stride, norm_type=p)
        yield pool_draft("power_pooling", n, o, low=0.1)
    alike = (
        (kind, (size,) * n)
        for kind, n, size in product(("avg", "max"), (1, 2, 3), (1, 2, 3, 4, 5))
        if n < 3 or size <= 3
    )
    for kind, sides in (*alike, *product(("avg",), ((2, 3), (4, 1), (3, 5)))):
        n = len(sides)
        o = op(f"adaptive_{kind}_pool{n}d", output_size=sides)
        found = conv_sizes(conv_op(n, (1,) * n), n, o.key, need=6)
        yield ModuleDraft("adaptive_pooling", 1, (o,), (conv_input(n),), *found)


# --- normalisation -------------------------------------------------------------------------------


def norm_draft(
    family: str, rank: int, o: Operation, layout: Layout = "channels_first"
) -> ModuleDraft:
    """A norm of a tensor of that rank."""
    return tensor_draft(family, rank, o, sizes=plain_sizes(rank, o.key), layout=layout)


def layer_norms(ranks: Sequence[int], axes: Sequence[int], epsilons: Sequence[float]) -> Drafts:
    """Over the last axes."""
    for rank, last, eps, affine in product(ranks, axes, epsilons, BOTH):
        if last < rank:
            o = op("layer_norm", axes=last, eps=eps, affine=affine)
            yield norm_draft("layer_normalisation", rank, o, "features_last")


def unit_norms(ranks: Sequence[int]) -> Drafts:
    """Over a norm along an axis."""
    for rank, p in product(ranks, (1.0, 2.0, 3.0)):
        for axis in range(rank):
            yield norm_draft("unit_normalisation", rank, op("normalize", p=p, axis=axis))


def _norms() -> Drafts:
    epsilons = (1e-5, 1e-3, 1e-6, 0.1)
    for rank, eps, affine, tracked in product((2, 3, 4, 5), epsilons, BOTH, BOTH):
        o = op("batch_norm", eps=eps, affine=affine, tracked=tracked)
        yield norm_draft("batch_normalisation", rank, o)
    for rank, eps, affine in product((3, 4, 5), epsilons, BOTH):
        yield norm_draft(
            "instance_normalisation", rank, op("instance_norm", eps=eps, affine=affine)
        )
    for rank, groups, eps, affine in product((4, 5), (1, 2, 4), epsilons, BOTH):
        o = op("group_norm", num_groups=groups, eps=eps, affine=affine)
        yield norm_draft("group_normalisation", rank, o)
    yield from layer_norms((2, 3, 4), (1, 2, 3), epsilons)
    for rank, eps, affine in product((2, 3, 4), (1e-5, 1e-6, 1e-3, 0.01), BOTH):
        for axis in (1, rank - 1) if rank > 2 else (1,):
            o = op("rms_norm", axis=axis, eps=eps, affine=affine)
            yield norm_draft("rms_normalisation", rank, o)
    yield from unit_norms((2, 3, 4))


# --- reductions, softmax, scans ------------------------------------------------------------------


def each_axis(rank: int) -> Iterator[tuple[int, ...]]:
    """(0,), (1,), ..."""
    return ((axis,) for axis in range(rank))


def _runs(rank: int) -> Iterator[tuple[int, ...]]:
    """Every axis, and runs of several."""
    yield from each_axis(rank)
    for count in range(2, rank + 1):
        runs = ((1, 2), (2, 3), (0, 2), (0, 2, 3), (1, 2, 3))
        yield from (axes for axes in combinations(range(rank), count) if axes in runs)


def reductions(
    family: str,
    names: Sequence[str],
    axes_of: Callable[[int], Iterator[tuple[int, ...]]],
    ranks: Sequence[int] = (2, 3, 4),
    bounds: tuple[float, float] | None = None,
    **more: Any,
) -> Drafts:
    """Reductions of tensors along the axes that there are for a rank, which stay as 1 or go."""
    for name, rank in product(names, ranks):
        given = (tensor("x", rank, *bounds or ()),)
        for axes, keepdim in product(axes_of(rank), BOTH):
            o = op(name, axes=axes, keepdim=keepdim, **more)
            yield tensor_draft(family, rank, o, inputs=given)


_NEAR_ONE = (0.99, 1.01)
"""Of other values a product of thousands is zero or infinite."""


def _reductions() -> Drafts:
    yield from reductions("sum_reduction", ("sum", "mean"), _runs)
    yield from reductions("extremum_reduction", ("amax", "amin"), _runs)
    yield from reductions("extremum_reduction", ("max", "min"), each_axis)
    yield from reductions("arg_reduction", ("argmax", "argmin"), each_axis)
    for unbiased in BOTH:
        yield from reductions("moment_reduction", ("var", "std"), _runs, (3, 4), unbiased=unbiased)
    for p in (1.0, 2.0, 3.0, "inf"):
        yield from reductions("norm_reduction", ("vector_norm",), each_axis, (2, 3), p=p)
        yield from reductions("norm_reduction", ("vector_norm",), _runs, (4,), p=p)
    yield from reductions("logsumexp_reduction", ("logsumexp",), _runs)
    yield from reductions("product_reduction", ("prod",), each_axis, bounds=_NEAR_ONE)


def softmaxes(ranks: Sequence[int], before: Sequence[tuple[Operation, ...]]) -> Drafts:
    """Normalised exponentials along an axis, of what an operation gives; of a quotient softmax."""
    for name, rank in product(("softmax", "log_softmax", "softmin"), ranks):
        for axis, first in product(range(rank), before):
            yield tensor_draft("softmax", rank, *first, op(name, axis=axis))


def _softmaxes() -> Drafts:
    before = (
        (),
        *((op("scale", scale_factor=f),) for f in (0.5, 2.0)),
        (op("divide", divisor=8.0),),
    )
    for draft in softmaxes((2, 3, 4), before):
        if draft.operations[0].name != "divide" or draft.operations[1].name == "softmax":
            yield draft


def scans(ranks: Sequence[int]) -> Drafts:
    """Running results along an axis."""
    kinds = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
    for kind, direction, rank in product(kinds, ("forward", "reverse", "exclusive"), ranks):
        if direction != "exclusive" or kind in ("cumsum", "cumprod"):
            given = (tensor("x", rank, *_NEAR_ONE),) if kind == "cumprod" else ()
            for axis in range(rank):
                o = op("scan", kind=kind, direction=direction, axis=axis)
                yield tensor_draft("scan", rank, o, inputs=given)


# --- losses and distances ------------------------------------------------------------------------

_REDUCED = ("mean", "sum", "none")


def _loss(family: str, rank: int, name: str, *inputs: ModuleInput, **given: Any) -> ModuleDraft:
    return tensor_draft(family, rank, op(name, **given), inputs=inputs)


def regression_losses() -> Drafts:
    """Of predictions and targets of any rank."""
    rows: list[tuple[str, dict[str, Any]]] = [("l1_loss", {}), ("mse_loss", {})]
    rows += [("smooth_l1_loss", {"beta": b}) for b in (0.5, 1.0, 2.0)]
    rows += [("huber_loss", {"delta": d}) for d in (0.25, 0.5, 1.0, 2.0)]
    for (name, given), reduction, rank in product(rows, _REDUCED, (1, 2, 3, 4)):
        inputs = (tensor("predictions", rank), tensor("targets", rank))
        yield _loss("regression_loss", rank, name, *inputs, **given, reduction=reduction)


def classification_losses() -> Drafts:
    """Of labels, and of logits."""
    labels, family = (
        ModuleInput("targets", ("batch_size",), "int64", 0, "features"),
        "classification_loss",
    )
    rows: list[tuple[str, str, dict[str, Any]]] = [
        *(("cross_entropy", "logits", {"label_smoothing": s}) for s in (0.0, 0.05, 0.1, 0.2)),
        ("nll_loss", "log_probs", {}),
        *(("multi_margin_loss", "scores", {"margin": m}) for m in (1.0, 0.5)),
    ]
    for kind in _REDUCED:
        for name, first, given in rows:
            yield _loss(family, 2, name, tensor(first, 2), labels, **given, reduction=kind)
        for rank in (1, 2, 3):
            inputs = (tensor("logits", rank), tensor("targets", rank, 0.0, 1.0))
            yield _loss(family, rank, "bce_with_logits", *inputs, reduction=kind)
            inputs = (tensor("log_rate", rank, -2.0, 2.0), tensor("targets", rank, 0.0, 5.0))
            yield _loss(family, rank, "poisson_nll_loss", *inputs, reduction=kind)


def margin_losses() -> Drafts:
    """Of three tensors, and of signs."""
    triple = (tensor("anchor", 2), tensor("positive", 2), tensor("negative", 2))
    for margin, p, kind in product((0.2, 0.5, 1.0, 2.0), (1.0, 2.0), _REDUCED):
        given: dict[str, Any] = {"margin": margin, "p": p, "reduction": kind}
        yield _loss("margin_loss", 2, "triplet_margin_loss", *triple, **given)
    for margin, power, kind, rank in product((0.5, 1.0, 2.0), (1, 2), ("mean", "sum"), (1, 2)):
        inputs = (tensor("predictions", rank), tensor("targets", rank, -1.0, 1.0))
        given = {"margin": margin, "power": power, "reduction": kind}
        yield _loss("margin_loss", rank, "hinge", *inputs, **given)


def _distances() -> Drafts:
    pairs = {rank: (tensor("x1", rank), tensor("x2", rank)) for rank in (2, 3, 4)}
    for rank, eps in product((2, 3, 4), (1e-8, 1e-6, 1e-3)):
        for axis in range(1, rank):
            o = op("cosine_similarity", axis=axis, eps=eps)
            yield tensor_draft("distance", rank, o, inputs=pairs[rank])
    for p, keepdim, rank in product((1.0, 2.0, 3.0), BOTH, (2, 3)):
        o = op("pairwise_distance", p=p, eps=1e-6, keepdim=keepdim)
        yield tensor_draft("distance", rank, o, inputs=pairs[rank])
    for p, rank in product((1.0, 3.0), (2, 3)):
        given = (_matrix("x1", rank, "M", "K"), _matrix("x2", rank, "N", "K"))
        yield tensor_draft("distance", rank, op("cdist", p=p), inputs=given, sizes=_PRODUCTS[rank])


# --- products ------------------------------------------------------------------------------------

_BATCHED: dict[str, Sequence[int]] = {
    "batch_size": (3, 5, 2, 32, 7), "M": (16, 13, 3, 256, 257), "K": (20, 17, 5, 512, 321),
    "N": (12, 11, 2, 256, 131),
}  # fmt: skip
_PRODUCTS = {
    2: sizes_of(M=(24, 19, 3, 1024, 1021), K=(32, 21, 5, 1024, 777), N=(20, 17, 2, 2048, 515)),
    3: sizes_of(**_BATCHED),
    4: sizes_of(**_BATCHED, num_heads=(2, 3, 2, 8, 3)),
}
"""By rank."""
_AFTER = (
    op("relu"), op("gelu"), op("sigmoid"), op("tanh"), op("silu"), op("scale", scale_factor=0.125),
    op("clamp", min_value=-4.0, max_value=4.0), op("softplus", beta=1.0, threshold=20.0),
    op("square"),
)  # fmt: skip


def _matrix(name: str, rank: int, *dims: str) -> ModuleInput:
    return ModuleInput(name, (*("batch_size", "num_heads")[: rank - 2], *dims))


def _product(rank: int, *of: ModuleInput | Operation) -> ModuleDraft:
    operations = [o for o in of if isinstance(o, Operation)]
    given = tuple(one for one in of if isinstance(one, ModuleInput))
    return tensor_draft("matrix_product", rank, *operations, inputs=given, sizes=_PRODUCTS[rank],
                        layout="features_last")  # fmt: skip


def product_draft(rank: int, ta: bool, tb: bool, after: Operation) -> ModuleDraft:
    """A product of two tensors of matrices, each turned or not, and one step after it."""
    a = _matrix("A", rank, *("KM" if ta else "MK"))
    b = _matrix("B", rank, *("NK" if tb else "KN"))
    return _product(rank, a, b, op("matmul", ta=ta, tb=tb), after)


def _matrix_products() -> Drafts:
    """Products in every layout with one step after them; Gram matrices; scaled sums; of three."""
    for rank, ta, tb, after in product((2, 3, 4), (False, True), (False, True), _AFTER):
        yield product_draft(rank, ta, tb, after)
    a, b, c, d = (
        {rank: _matrix(name, rank, *dims) for rank in (2, 3, 4)}
        for name, dims in (("A", "MK"), ("B", "KN"), ("C", "MN"), ("D", "NM"))
    )
    for rank, ta in product((2, 3, 4), (False, True)):
        own = op("matmul", ta=ta, tb=not ta, own=True)
        yield _product(rank, a[rank], own)
        yield _product(rank, a[rank], own, op("divide", divisor=16.0))
    for rank, beta, alpha in product((2, 3), (1.0, 0.5, 2.0), (1.0, 0.25, 0.5, 2.0)):
        yield _product(rank, c[rank], a[rank], b[rank], op("addmm", beta=beta, alpha=alpha))
    first = op("matmul", ta=False, tb=False)
    for rank, then in product((2, 3), ((), *((o,) for o in _AFTER[:4]))):
        yield _product(rank, a[rank], b[rank], d[rank], first, *then, op("matmul_last"))


def _linear_layers() -> Drafts:
    """Linear layers on tensors of 2 to 4 axes, alone and with an activation."""
    outer: dict[str, Sequence[int]] = {
        "batch_size": (6, 5, 2, 64, 13), "num_heads": (2, 3, 2, 8, 3), "length": (5, 3, 2, 64, 31),
    }  # fmt: skip
    features: dict[str, Sequence[int]] = {
        "in_features": (32, 21, 5, 1024, 515), "out_features": (24, 17, 3, 1024, 333),
    }  # fmt: skip
    extents: dict[int, dict[str, Sequence[int]]] = {
        2: {"batch_size": (16, 13, 3, 1024, 777)},
        3: {name: outer[name] for name in ("batch_size", "length")},
        4: outer,
    }
    for rank, bias, after in product((2, 3, 4), BOTH, ((), *((o,) for o in _AFTER[:5]))):
        given = (ModuleInput("x", (*extents[rank], "in_features")),)
        o, sizes = (
            op("linear", out="out_features", bias=bias),
            sizes_of(**extents[rank], **features),
        )
        yield tensor_draft("linear_layer", rank, o, *after, inputs=given, sizes=sizes,
                           layout="features_last")  # fmt: skip


def _attentions() -> Drafts:
    sizes = sizes_of(batch_size=(2, 1, 2, 8, 3), num_heads=(2, 3, 2, 8, 5),
                     length=(12, 9, 3, 256, 131), head_dim=(8, 6, 4, 64, 40))  # fmt: skip
    for rank, causal, scale in product((3, 4), BOTH, (0.125, 0.25, 0.5, 1.0, 0.1)):
        dims = ("batch_size", *("num_heads",) * (rank == 4), "length", "head_dim")
        given = tuple(ModuleInput(name, dims) for name in ("q", "k", "v"))
        o = op("attention", causal=causal, scale=scale)
        yield tensor_draft("attention", rank, o, inputs=given, sizes=sizes, layout="features_last")


# --- elementwise, moves, the rest ----------------------------------------------------------------


def _activations() -> Drafts:
    """Elementwise functions with arguments, and those that learn one."""
    for name, row in ELEMENTWISE.items():
        if not (row.reads or name.endswith("_scalar") or name in ("scale", "divide")):
            for arguments, rank in product((*row.choices, *row.alone), (2, 3, 4)):
                yield tensor_draft("activation", rank, Operation(name, arguments))
    for rank, per_channel, init in product((2, 3, 4), BOTH, (0.25, 0.1, 0.5)):
        yield tensor_draft("activation", rank, op("prelu", per_channel=per_channel, init=init))


def _gates() -> Drafts:
    """One half of an axis times a function of the other half; an axis of even extents."""
    for rank in (3, 4):
        sizes = plain_sizes(rank, "glu")
        for axis, name in [*enumerate(AXES[rank])][1:]:
            even = with_sizes(sizes, **{name: [2 * one[name] for one in five(sizes)]})
            yield tensor_draft("gate", rank, op("glu", axis=axis), sizes=even)


def moves(
    ranks: Sequence[int],
    flips: Callable[[int], Iterator[tuple[int, ...]]],
    shifts: Sequence[int],
    diagonals: Sequence[int],
) -> Drafts:
    """Turned, rolled and triangular tensors."""
    for rank in ranks:
        for axes in flips(rank):
            yield tensor_draft("move", rank, op("flip", axes=axes))
        for axis, shift in product(range(rank), shifts):
            yield tensor_draft("move", rank, op("roll", shifts=shift, axis=axis))
        for name, diagonal in product(("tril", "triu"), diagonals):
            yield tensor_draft("move", rank, op(name, diagonal=diagonal))


def orders(rank: int) -> Drafts:
    """Every other order of the axes."""
    for order in permutations(range(rank)):
        if order != tuple(range(rank)):
            yield tensor_draft("permutation", rank, op("permute", order=order))


def pads(
    widths: Sequence[tuple[int, ...]], values: Sequence[float], ranks: Sequence[int] = (2, 3, 4)
) -> Drafts:
    """With a constant on both sides of the last axes."""
    for width, value, rank in product(widths, values, ranks):
        o = op("pad", widths=width, mode="constant", value=value)
        yield tensor_draft("padding", rank, o)


def _flips(rank: int) -> Iterator[tuple[int, ...]]:
    for axes in ((0,), (1,), (rank - 1,), (0, 1), (rank - 2, rank - 1)):
        yield tuple(sorted(set(axes)))


def _moves() -> Drafts:
    yield from orders(3)
    yield from (draft for draft in orders(4) if draft.operations[0]["order"][0] < 2)
    yield from moves((2, 3, 4), _flips, (1, -2, 3), (-1, 0, 1, 2))
    yield from pads(((1, 1), (2, 0), (1, 2, 0, 3), (2, 2, 1, 1), (-1, 2)), (0.0, 1.5))
    widths = ((1, 1), (2, 1), (1, 1, 2, 2), (3, 0, 0, 2))
    for mode, width in product(("reflect", "replicate"), widths):
        yield tensor_draft("padding", 2 + len(width) // 2, op("pad", widths=width, mode=mode))


def _resamplings() -> Drafts:
    for factor, rank in product((2, 3, 4), (3, 4, 5)):
        yield tensor_draft("resampling", rank, op("upsample_nearest", factor=factor))
    base = plain_sizes(4, "shuffle")
    for factor in (2, 3):
        squares = with_sizes(base, channels=[factor**2 * c for c in (3, 2, 1, 16, 5)])
        yield tensor_draft("resampling", 4, op("pixel_shuffle", factor=factor), sizes=squares)
        sides = ((5, 3, 2, 32, 17), (4, 5, 1, 32, 19))
        height, width = ([factor * extent for extent in side] for side in sides)
        multiples = with_sizes(base, height=height, width=width)
        yield tensor_draft("resampling", 4, op("pixel_unshuffle", factor=factor), sizes=multiples)


def _embeddings() -> Drafts:
    sizes = sizes_of(
        batch_size=(5, 3, 2, 64, 17), length=(7, 5, 2, 512, 131), heads=(2, 3, 2, 4, 3),
        num_embeddings=(50, 33, 4, 32000, 4099), embedding_dim=(16, 13, 3, 512, 333),
    )  # fmt: skip
    for rank in (1, 2, 3):
        names = ("batch_size", "length", "heads")[:rank]
        given = (ModuleInput("tokens", names, "int64", 0, "num_embeddings"),)
        for after in ((), (op("scale", scale_factor=22.627417),)):
            both = (op("embedding"), *after)
            yield tensor_draft("embedding", rank, *both, inputs=given, sizes=sizes,
                               layout="features_last")  # fmt: skip


LEVEL_1: tuple[Callable[[], Drafts], ...] = (
    _convolutions, _channelwise, _pools, _norms, _reductions, _softmaxes, lambda: scans((2, 3, 4)),
    regression_losses, classification_losses, margin_losses, _matrix_products, _linear_layers,
    _attentions, _activations, _gates, _moves, _resamplings, _distances, _embeddings,
)  # fmt: skip
