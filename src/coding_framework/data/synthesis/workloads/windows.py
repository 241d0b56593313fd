"""Workloads over windows: pooling, convolutions of sequences and images, depthwise ones, blocks.

Padding is half the window, so that an odd window at stride 1 keeps the extent.
"""

from __future__ import annotations

from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import (
    Params,
    Sizes,
    WorkloadOp,
    same,
    sums,
    weight,
)

# --- pooling -------------------------------------------------------------------------------------

_POOL_1D = Sizes(
    "bch",
    ((4, 32, 256), (3, 17, 131), (1, 3, 9)),
    ((64, 512, 2048), (33, 127, 2041), (1, 3, 9)),
)
_POOL_2D = Sizes(
    "bchw",
    ((2, 8, 48, 48), (3, 5, 31, 37), (1, 2, 6, 7)),
    ((32, 64, 256, 256), (5, 37, 251, 253), (1, 2, 6, 7)),
)


def _fits(params: Params) -> bool:
    window, stride = params
    return 2 <= window <= 5 and 1 <= stride <= window


def _norm(v: Interval) -> Interval:
    top = max(abs(v.low), abs(v.high))
    usual = max(abs(v.typical_low), abs(v.typical_high))
    return Interval(0.0, 5 * top, 0.5 * usual, 3 * usual)


_pool = partial(
    WorkloadOp,
    letters="ks",
    choices=((2, 2), (3, 1), (3, 2), (4, 4), (5, 1), (5, 2)),
    check=_fits,
)
POOL_1D = (
    _pool("maxpool1d", "F.max_pool1d(x, {k}, {s}, {k} // 2)", "maxpool1d({v}, {k}, {s})",
          _POOL_1D, interval=same),
    _pool("avgpool1d", "F.avg_pool1d(x, {k}, {s}, {k} // 2)", "avgpool1d({v}, {k}, {s})",
          _POOL_1D, interval=same, terms="k"),
)  # fmt: skip
POOL_2D = (
    _pool("maxpool2d", "F.max_pool2d(x, {k}, {s}, {k} // 2)", "maxpool2d({v}, {k}, {s})",
          _POOL_2D, interval=same),
    _pool("avgpool2d", "F.avg_pool2d(x, {k}, {s}, {k} // 2)", "avgpool2d({v}, {k}, {s})",
          _POOL_2D, interval=same, terms="kk"),
    _pool("normpool2d", "torch.sqrt(F.avg_pool2d(x * x, {k}, {s}, {k} // 2) * {k} ** 2)",
          "l2 pooling of {v}, window {k}, stride {s}", _POOL_2D, interval=_norm, terms="kk"),
)  # fmt: skip

# --- convolutions --------------------------------------------------------------------------------

_conv = partial(WorkloadOp, letters="k", check=lambda params: params[0] in (3, 5, 7))
_CONV_1D = Sizes(
    "bcno",
    ((2, 8, 128, 16), (3, 5, 61, 7), (1, 2, 9, 3)),
    ((32, 64, 8192, 64), (5, 37, 8191, 61), (1, 2, 9, 3)),
)
"""Batch, channels in, extent, channels out."""
CONV_1D = (
    _conv("conv1d", "F.conv1d(x, u, padding={k} // 2)", "conv1d({v}, u), {k} taps", _CONV_1D,
          (weight("u", "o c k"),), x="b c n", terms="ck", interval=sums(64 * 7),
          choices=((3,), (5,), (7,))),
)  # fmt: skip

_CONV_2D = Sizes(
    "bchwo",
    ((2, 4, 24, 24, 8), (1, 3, 19, 21, 5), (1, 2, 6, 7, 2)),
    ((16, 64, 128, 128, 64), (3, 19, 127, 125, 21), (1, 2, 6, 7, 2)),
)
"""Batch, channels in, height, width, channels out."""
_SQUARE = Sizes(
    "bchwo",
    ((2, 6, 24, 24, 6), (1, 5, 19, 21, 5), (1, 2, 6, 7, 2)),
    ((16, 64, 128, 128, 64), (3, 21, 127, 125, 21), (1, 2, 6, 7, 2)),
)
_image = partial(_conv, x="b c h w", terms="ckk", interval=sums(64 * 25 + 1), choices=((3,), (5,)))
_FILTER = weight("u", "o c k k")
CONV_2D = (
    _image("conv2d", "F.conv2d(x, u, padding={k} // 2)", "conv2d({v}, u), {k}x{k}", _CONV_2D,
           (_FILTER,)),
)  # fmt: skip
CONV_BLOCK = (
    _image("convbias", "F.conv2d(x, u, b, padding={k} // 2)", "conv2d({v}, u, b), {k}x{k}",
           _CONV_2D, (_FILTER, weight("b", "o"))),
    _image("convresidual", "x + F.conv2d(x, u, padding={k} // 2)",
           "{v} + conv2d({v}, u), {k}x{k}", _SQUARE, (_FILTER,)),
)  # fmt: skip

_depth = partial(
    _conv,
    sizes=Sizes(
        "bchw",
        ((2, 8, 40, 40), (3, 5, 31, 37), (1, 2, 6, 7)),
        ((32, 64, 256, 256), (5, 37, 251, 253), (1, 2, 6, 7)),
    ),
    others=(weight("u", "c 1 k k"),),
    terms="kk",
    interval=sums(50),
    choices=((3,), (5,), (7,)),
)
DEPTHWISE_CONV = (
    _depth("depthwise", "F.conv2d(x, u, padding={k} // 2, groups=x.size(1))",
           "depthwise conv2d({v}, u), {k}x{k}"),
    _depth("depthresidual", "x + F.conv2d(x, u, padding={k} // 2, groups=x.size(1))",
           "{v} + depthwise conv2d({v}, u), {k}x{k}"),
)  # fmt: skip
