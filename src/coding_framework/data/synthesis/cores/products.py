"""Cores that sum products or walk over windows: matrix products, batched, transposed and gated;
attention, with x holding queries, y keys, z values; pooling and convolutions.

Padding is half the window, so that an odd window at stride 1 keeps the extent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coding_framework.data.synthesis.cores.rows import LONGEST, same, within
from coding_framework.data.synthesis.function import FLOATS, Core, Given, Params, Sizes, weight
from coding_framework.data.synthesis.steps import Interval

# --- products -------------------------------------------------------------------------------------

_BATCHED = Sizes(
    "bnkm",
    ((2, 64, 48, 40), (3, 33, 29, 35), (1, 3, 5, 4)),
    ((16, 1024, 1024, 1024), (5, 511, 1021, 509), (1, 3, 5, 4)),
)
"""Products, rows, inner extent, columns."""
_ONE = Sizes(
    "nkm",
    ((96, 128, 64), (67, 75, 45), (3, 5, 4)),
    ((4096, 4096, 4096), (1021, 2043, 1019), (3, 5, 4)),
)


def _product(v: Interval) -> Interval:
    bound, usual = LONGEST * v.largest, 4 * v.largest
    return Interval(-bound, bound, -usual, usual)


_batched = partial(Core, sizes=_BATCHED, x="b n k", terms="k", interval=_product)
BATCHED_MATMUL = (
    _batched("bmm", "torch.bmm(x, u)", "({v}) @ u for each matrix of the batch",
             others=(weight("u", "b k m"),), dtypes=FLOATS),
    _batched("bmmnt", "torch.bmm(x, u.transpose(1, 2))",
             "({v}) @ u^T for each matrix of the batch", others=(weight("u", "b m k"),)),
    _batched("bmmshared", "x @ u", "({v}) @ u, the same u for each matrix of the batch",
             others=(weight("u", "k m"),), atoms=("matmul",)),
)  # fmt: skip
_single = partial(Core, sizes=_ONE, terms="k", interval=_product)
MATMUL_TRANSPOSED = (
    _single("matmulnt", "x @ u.t()", "({v}) @ u^T", others=(weight("u", "m k"),), x="n k",
            dtypes=FLOATS, atoms=("matmul",)),
    _single("matmultn", "x.t() @ u", "({v})^T @ u", others=(weight("u", "k m"),), x="k n",
            dtypes=FLOATS),
    _single("matmulhalf", "x @ u", "({v}) @ u", others=(weight("u", "k m"),), x="n k",
            dtypes=FLOATS[1:], atoms=("matmul",)),
)  # fmt: skip


def _gated(name: str, gate: str) -> Core:
    return Core(
        name, f"{gate} * (x @ g)", f"{name}: gate(({{v}}) @ u) * (({{v}}) @ g)",
        Sizes("nkm", _ONE.emulator, ((2048, 2048, 4096), *_ONE.gpu[1:])),
        (weight("u", "k m"), weight("g", "k m")), x="n k", terms="k",
        interval=within(-1e5, 1e5, -20.0, 20.0),
    )  # fmt: skip


GATED_LINEAR = (
    _gated("swiglu", "F.silu(x @ u)"),
    _gated("geglu", "F.gelu(x @ u)"),
    _gated("reglu", "torch.relu(x @ u)"),
    _gated("sigglu", "torch.sigmoid(x @ u)"),
    _gated("bilinear", "(x @ u)"),
)

# --- attention ------------------------------------------------------------------------------------

_ALL = Sizes(
    "bnkwv",
    ((2, 48, 48, 32, 32), (3, 33, 33, 19, 35), (1, 3, 3, 5, 4)),
    ((64, 1024, 1024, 64, 64), (5, 1021, 1021, 61, 67), (1, 3, 3, 5, 4)),
)
"""Batch, queries, keys, extent of queries and keys, extent of values."""
_SCORES = Sizes(
    "bnkw",
    ((2, 64, 64, 32), (3, 45, 45, 19), (1, 3, 3, 5)),
    ((16, 2048, 2048, 64), (5, 1021, 1021, 61), (1, 3, 3, 5)),
)
_SCORE = "s = (x @ y.transpose(1, 2)) * x.size(2) ** -0.5"
_MASK = "s = s.masked_fill(torch.ones_like(s).triu(1) > 0, float('-inf'))"
_KEYS, _VALUES = Given("y", "b k w"), Given("z", "b k v")


def _scores(name: str, *mask: str) -> Core:
    return Core(
        name, (_SCORE, *mask, "torch.softmax(s, dim=2)"),
        f"softmax of the {'causal ' if mask else ''}scores ({{v}}) @ y^T / sqrt(w)",
        _SCORES, (_KEYS,), x="b n w", terms="w+k", interval=within(0.0, 1.0, 0.0, 0.1),
    )  # fmt: skip


def _attention(name: str, *mask: str) -> Core:
    return Core(
        name, (_SCORE, *mask, "torch.softmax(s, dim=2) @ z"),
        f"{'causal ' if mask else ''}attention of the queries {{v}}, keys y, values z",
        _ALL, (_KEYS, _VALUES), x="b n w", terms="w+k", interval=within(-2.0, 2.0, -0.6, 0.6),
    )  # fmt: skip


ATTENTION_SCORES = (_scores("attnscores"), _scores("causalscores", _MASK))
ATTENTION = (_attention("attention"), _attention("causalattention", _MASK))

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
    return Interval(0.0, 5 * v.largest, 0.5 * v.usual, 3 * v.usual)


def _sums(terms: int) -> Callable[[Interval], Interval]:
    """Of sums of products with weights in [-1, 1]: bounds hold for up to `terms` terms."""
    return lambda v: Interval(-terms * v.largest, terms * v.largest, -2 * v.usual, 2 * v.usual)


_pool = partial(
    Core,
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

_conv = partial(Core, letters="k", check=lambda params: params[0] in (3, 5, 7))
_CONV_1D = Sizes(
    "bcno",
    ((2, 8, 128, 16), (3, 5, 61, 7), (1, 2, 9, 3)),
    ((32, 64, 8192, 64), (5, 37, 8191, 61), (1, 2, 9, 3)),
)
"""Batch, channels in, extent, channels out."""
CONV_1D = (
    _conv("conv1d", "F.conv1d(x, u, padding={k} // 2)", "conv1d({v}, u), {k} taps", _CONV_1D,
          (weight("u", "o c k"),), x="b c n", terms="ck", interval=_sums(64 * 7),
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
_image = partial(_conv, x="b c h w", terms="ckk", interval=_sums(64 * 25 + 1), choices=((3,), (5,)))
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
    interval=_sums(50),
    choices=((3,), (5,), (7,)),
)
DEPTHWISE_CONV = (
    _depth("depthwise", "F.conv2d(x, u, padding={k} // 2, groups=x.size(1))",
           "depthwise conv2d({v}, u), {k}x{k}"),
    _depth("depthresidual", "x + F.conv2d(x, u, padding={k} // 2, groups=x.size(1))",
           "{v} + depthwise conv2d({v}, u), {k}x{k}"),
)  # fmt: skip
