"""The families of level 1 that are layers: convolutions, pooling, normalisation.

Each gives every draft of its grid of arguments; `catalog` leaves out what KernelBench has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from coding_framework.data.modules.records import (
    Layout,
    ModuleDraft,
    ModuleInput,
    Operation,
    Value,
    op,
)
from coding_framework.data.modules.sizes import SPATIAL, conv_sizes, plain_sizes, tensor

# --- convolutions --------------------------------------------------------------------------------


def conv_op(
    n: int, kernel: tuple[int, ...], *, stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0, dilation: int | tuple[int, ...] = 1, groups: int = 1,
    bias: bool = True, transposed: bool = False, output_padding: int = 0,
    out: str = "out_channels",
) -> Operation:  # fmt: skip
    """A convolution's operation, its arguments for each axis."""

    def each(value: int | tuple[int, ...]) -> tuple[int, ...]:
        return value if isinstance(value, tuple) else (value,) * n

    more: dict[str, Value] = {"output_padding": each(output_padding)} if transposed else {}
    return op(
        f"conv{'_transpose' if transposed else ''}{n}d", kernel_size=kernel, stride=each(stride),
        padding=each(padding), **more, dilation=each(dilation), groups=groups, bias=bias, out=out,
    )  # fmt: skip


def pool_op(
    kind: str, n: int, kernel: int, stride: int, padding: int = 0, **more: Value
) -> Operation:
    """A pooling's operation, alike along all axes. kind: max, avg or lp."""
    options: dict[str, Value] = {"kernel_size": (kernel,) * n, "stride": (stride,) * n}
    options["padding"] = (padding,) * n
    if kind == "max":
        more = {"dilation": 1, "ceil_mode": False, **more}
    elif kind == "avg":
        more = {"count_include_pad": True, **more}
    first = {"norm_type": more.pop("norm_type")} if kind == "lp" else {}
    return op(f"{kind}_pool{n}d", **first, **options, **more)


def conv_input(n: int, name: str = "x") -> ModuleInput:
    """The input of a convolution."""
    return ModuleInput(name, ("batch_size", "in_channels", *SPATIAL[n]))


_KERNELS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((2,), (3,), (5,), (7,), (9,)),
    2: ((2, 2), (3, 3), (5, 5), (7, 7), (1, 3), (3, 5), (5, 2)),
    3: ((2, 2, 2), (3, 3, 3), (1, 3, 3), (3, 1, 2), (2, 3, 4)),
}
_PLACES: tuple[tuple[int, int, int], ...] = (
    (1, 1, 1), (2, 0, 1), (2, 1, 1), (1, 2, 2), (1, 0, 2), (3, 1, 1), (2, 2, 2), (1, 0, 3),
)  # fmt: skip
"""Stride, padding, dilation."""


def convolutions(n: int, *, transposed: bool = False) -> Iterator[ModuleDraft]:
    """Every kernel size with every stride, padding and dilation, grouped and not in turn; where the
    stride of a transposed one has room for it, with output padding."""
    turn, groups = 0, (1, 2, 1, 4) if transposed else (1, 1, 2, 4)
    for kernel, (stride, padding, dilation) in product(_KERNELS[n], _PLACES):
        if padding > (dilation * (min(kernel) - 1) if transposed else min(kernel)):
            continue
        for bias in (True, False):
            o = conv_op(
                n,
                kernel,
                stride=stride,
                padding=padding,
                dilation=dilation,
                groups=groups[turn % 4],
                bias=bias,
                transposed=transposed,
                output_padding=turn % 2 if transposed and stride > 1 else 0,
            )
            turn += 1
            yield conv_draft(f"{'transposed_' if transposed else ''}convolution_{n}d", n, o)


def conv_draft(family: str, n: int, o: Operation, *more: Operation) -> ModuleDraft:
    """A convolution of n axes, and what comes after it."""
    sizes = conv_sizes(o, n, f"{family}{o.key}")
    return ModuleDraft(family, 1, (o, *more), (conv_input(n),), *sizes)


def depthwise_convolutions() -> Iterator[ModuleDraft]:
    """One filter a channel, of 1 to 3 axes."""
    for n in (1, 2, 3):
        for kernel, (stride, padding, dilation) in product(_KERNELS[n][:4], _PLACES[:6]):
            if padding > min(kernel):
                continue
            bias = (stride + padding + len(kernel)) % 2 == 0
            o = conv_op(n, kernel, stride=stride, padding=padding, dilation=dilation, groups=-1,
                        bias=bias, out="in_channels")  # fmt: skip
            yield conv_draft("depthwise_convolution", n, o)


def pointwise_convolutions() -> Iterator[ModuleDraft]:
    """Windows of one place: products over the channels."""
    for n, stride, groups, bias in product((1, 2, 3), (1, 2, 3), (1, 2, 4), (True, False)):
        yield conv_draft(
            "pointwise_convolution",
            n,
            conv_op(n, (1,) * n, stride=stride, groups=groups, bias=bias),
        )


def separable_convolutions() -> Iterator[ModuleDraft]:
    """A depthwise convolution, then a pointwise one."""
    for n in (1, 2, 3):
        for kernel, (stride, padding, dilation) in product(_KERNELS[n][1:4], _PLACES[:6]):
            if padding > min(kernel):
                continue
            bias = (stride + padding) % 2 == 0
            first = conv_op(n, kernel, stride=stride, padding=padding, dilation=dilation, groups=-1,
                            bias=bias, out="in_channels")  # fmt: skip
            yield conv_draft("separable_convolution", n, first, conv_op(n, (1,) * n, bias=bias))


# --- pooling -------------------------------------------------------------------------------------


def pool_draft(family: str, n: int, o: Operation, low: float | None = None) -> ModuleDraft:
    """Pooled extents: large enough for every window."""
    as_conv = conv_op(
        n,
        o.integers("kernel_size"),
        stride=o.integers("stride"),
        padding=o.integers("padding"),
        dilation=o.number("dilation") if "dilation" in dict(o.arguments) else 1,
    )
    given = replace(conv_input(n), low=low, high=None if low is None else 3.0)
    return ModuleDraft(family, 1, (o,), (given,), *conv_sizes(as_conv, n, f"{family}{o.key}"))


_WINDOWS = ((2, 2), (2, 1), (3, 1), (3, 2), (3, 3), (4, 2), (5, 2), (5, 3))
"""Kernel size, stride."""


def max_pools() -> Iterator[ModuleDraft]:
    for n, (kernel, stride), padding, dilation in product((1, 2, 3), _WINDOWS, (0, 1), (1, 2)):
        ceil = (kernel + stride + padding + dilation) % 3 == 0
        o = pool_op("max", n, kernel, stride, padding, dilation=dilation, ceil_mode=ceil)
        yield pool_draft("max_pooling", n, o)


def average_pools() -> Iterator[ModuleDraft]:
    for n, (kernel, stride), padding in product((1, 2, 3), _WINDOWS, (0, 1)):
        for counted in (True, False) if padding else (True,):
            o = pool_op("avg", n, kernel, stride, padding, count_include_pad=counted)
            yield pool_draft("average_pooling", n, o)


def power_pools() -> Iterator[ModuleDraft]:
    for n, (kernel, stride), p in product((1, 2), _WINDOWS, (1.0, 2.0, 3.0)):
        o = pool_op("lp", n, kernel, stride, norm_type=p)
        yield pool_draft("power_pooling", n, o, low=0.1)


def adaptive_pools() -> Iterator[ModuleDraft]:
    for kind, n, size in product(("avg", "max"), (1, 2, 3), (1, 2, 3, 4, 5)):
        if n < 3 or size <= 3:
            yield _adaptive_pool(kind, (size,) * n)
    for sides in ((2, 3), (4, 1), (3, 5)):
        yield _adaptive_pool("avg", sides)


def _adaptive_pool(kind: str, sizes: tuple[int, ...]) -> ModuleDraft:
    n = len(sizes)
    o = op(f"adaptive_{kind}_pool{n}d", output_size=sizes)
    found = conv_sizes(conv_op(n, (1,) * n), n, o.key, need=6)
    return ModuleDraft("adaptive_pooling", 1, (o,), (conv_input(n),), *found)


# --- normalisation -------------------------------------------------------------------------------

_EPS = (1e-5, 1e-3, 1e-6, 0.1)


def norm_draft(family: str, rank: int, o: Operation, channels_last: bool = False) -> ModuleDraft:
    """A norm of a tensor of that rank."""
    layout: Layout = "features_last" if channels_last else "channels_first"
    given = (tensor("x", rank),)
    return ModuleDraft(family, 1, (o,), given, *plain_sizes(rank, o.key), layout=layout)


def batch_norms() -> Iterator[ModuleDraft]:
    for rank, eps, affine, tracked in product((2, 3, 4, 5), _EPS, (True, False), (True, False)):
        yield norm_draft(
            "batch_normalisation", rank, op("batch_norm", eps=eps, affine=affine, tracked=tracked)
        )


def instance_norms() -> Iterator[ModuleDraft]:
    for rank, eps, affine in product((3, 4, 5), _EPS, (True, False)):
        yield norm_draft(
            "instance_normalisation", rank, op("instance_norm", eps=eps, affine=affine)
        )


def group_norms() -> Iterator[ModuleDraft]:
    for rank, groups, eps, affine in product((4, 5), (1, 2, 4), _EPS, (True, False)):
        yield norm_draft(
            "group_normalisation", rank, op("group_norm", num_groups=groups, eps=eps, affine=affine)
        )


def layer_norms() -> Iterator[ModuleDraft]:
    for rank, axes, eps, affine in product((2, 3, 4), (1, 2, 3), _EPS, (True, False)):
        if axes < rank:
            o = op("layer_norm", axes=axes, eps=eps, affine=affine)
            yield norm_draft("layer_normalisation", rank, o, channels_last=True)


def rms_norms() -> Iterator[ModuleDraft]:
    for rank, eps, affine in product((2, 3, 4), (1e-5, 1e-6, 1e-3, 0.01), (True, False)):
        for axis in (1, rank - 1) if rank > 2 else (1,):
            yield norm_draft(
                "rms_normalisation", rank, op("rms_norm", axis=axis, eps=eps, affine=affine)
            )


def unit_norms() -> Iterator[ModuleDraft]:
    for rank, p in product((2, 3, 4), (1.0, 2.0, 3.0)):
        for axis in range(rank):
            yield norm_draft("unit_normalisation", rank, op("normalize", p=p, axis=axis))
