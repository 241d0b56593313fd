"""Cores along rows and columns of a matrix: reductions, scans, norms, losses, backward passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from coding_framework.data.synthesis.function import FLOATS, RIGHT, Core, Given, Sizes, weight
from coding_framework.data.synthesis.steps import Interval

LONGEST = 8192
"""Extent of the longest reduction in any shape set: bounds of sums hold for it."""
USUAL = 256
"""Extent of reductions on the emulator: what results typically look like."""


def same(v: Interval) -> Interval:
    """The result lies where x does."""
    return v


def within(low: float, high: float, *typical: float) -> Callable[[Interval], Interval]:
    """The same whatever x is."""
    return lambda v: Interval(low, high, *typical)


def mean(v: Interval) -> Interval:
    """Of the mean of a row."""
    return Interval(v.low, v.high, v.middle - v.width / 16, v.middle + v.width / 16)


def total(usual: int) -> Callable[[Interval], Interval]:
    """Of the sum of a row, of so many elements usually."""

    def interval(v: Interval) -> Interval:
        low, high = min(v.low * LONGEST, v.low), max(v.high * LONGEST, v.high)
        return Interval(low, high, v.middle * usual - 8 * v.width, v.middle * usual + 8 * v.width)

    return interval


def _root(v: Interval) -> Interval:
    usual = v.usual * math.sqrt(USUAL)
    return Interval(0.0, v.largest * math.sqrt(LONGEST), 0.3 * usual, 0.9 * usual)


def _rms(v: Interval) -> Interval:
    bound, low, high = math.sqrt(LONGEST), v.typical_low, v.typical_high
    return Interval(-bound if v.low < 0 else 0.0, bound if v.high > 0 else 0.0,
                    1.7 * low / v.usual, 1.7 * high / v.usual)  # fmt: skip


def _unit(v: Interval) -> Interval:
    rms = _rms(v)
    return Interval(max(rms.low, -1.0), min(rms.high, 1.0), rms.typical_low / 8,
                    rms.typical_high / 8)  # fmt: skip


def _product(v: Interval) -> Interval:
    bound, spread = LONGEST * v.largest, 8.0 * v.usual
    return Interval(-bound, bound, -spread, spread)


def _scaled(factor: float) -> Callable[[Interval], Interval]:
    """Of sums of products with values of the other input: bounds of the longest row."""

    def interval(v: Interval) -> Interval:
        bound = factor * v.largest
        return Interval(-bound, bound, -2.0 * v.largest, 2.0 * v.largest)

    return interval


# --- of a matrix, alone: each task has hidden shapes of its own -----------------------------------

_GPU = ((4096, 8192), (4093, 8191), (3, 5))
"""On a GPU x alone is 128 MiB, more than an H200's L2."""
_ROWS = Sizes("nm", ((384, 192), (301, 133), (3, 5)), _GPU, varied=True)
_layout = partial(Core, sizes=_ROWS, operands=(True, ()), terms="m")
_column = partial(_layout, terms="n")
_row_norm = partial(_layout, operands=(True, ("full", "row", "scalar")))
MAP = Core(
    "", "x", "{v}", Sizes("nm", ((128, 512), (61, 259), (3, 5)), _GPU, varied=True),
    interval=same, atoms=(), values=same, operands=(True, ()),
)  # fmt: skip
"""No core: all is elementwise."""
_LOG_SUM_EXP = partial(np.logaddexp.reduce, axis=1, keepdims=True)
LAYOUTS = (
    _layout("rowsum", "torch.sum(x, dim=1)", "rowsum({v})", interval=total(USUAL),
            atoms=("sum",), values=lambda x: x.sum(1, keepdims=True)),
    _layout("rowmean", "torch.mean(x, dim=1)", "rowmean({v})", interval=mean,
            atoms=("sum", "scale"), values=lambda x: x.mean(1, keepdims=True)),
    _layout("rowmax", "torch.max(x, dim=1).values", "rowmax({v})", terms="1", atoms=("ext",),
            interval=lambda v: Interval(v.low, v.high, v.middle + v.width / 4, v.typical_high),
            values=lambda x: x.max(1, keepdims=True)),
    _layout("rowmin", "torch.min(x, dim=1).values", "rowmin({v})", terms="1", atoms=("ext",),
            interval=lambda v: Interval(v.low, v.high, v.typical_low, v.middle - v.width / 4),
            values=lambda x: x.min(1, keepdims=True)),
    _layout("logsumexp", "torch.logsumexp(x, dim=1)", "logsumexp({v})",
            interval=lambda v: Interval(
                v.low, v.high + math.log(LONGEST), v.middle + math.log(USUAL) / 2,
                v.typical_high + math.log(USUAL)),
            atoms=("exp", "sum", "log"), values=_LOG_SUM_EXP),
    _layout("rowvar", "torch.var(x, dim=1, correction=0)", "rowvar({v})",
            interval=lambda v: Interval(
                0.0, (v.high - v.low) ** 2 / 4, 0.04 * v.width**2, 0.12 * v.width**2),
            atoms=("center", "square", "sum", "scale"), values=lambda x: x.var(1, keepdims=True)),
    _layout("rownorm", "torch.linalg.vector_norm(x, dim=1)", "rownorm({v})", interval=_root,
            atoms=("square", "sum", "sqrt"),
            values=lambda x: np.linalg.norm(x, axis=1, keepdims=True)),
    _row_norm("softmax", "torch.softmax(x, dim=1)", "softmax({v}) of each row",
              interval=within(0.0, 1.0, 0.0, 0.05), atoms=("softmax",),
              values=lambda x: np.exp(x - _LOG_SUM_EXP(x))),
    _row_norm("logsoftmax", "torch.log_softmax(x, dim=1)", "logsoftmax({v}) of each row",
              interval=lambda v: Interval(
                  v.low - v.high - math.log(LONGEST), 0.0, -4.0 - v.width, -4.0),
              atoms=("softmax", "log"), values=lambda x: x - _LOG_SUM_EXP(x)),
    _row_norm("layernorm", "F.layer_norm(x, x.shape[1:])", "layernorm({v}) of each row",
              interval=within(-math.sqrt(LONGEST), math.sqrt(LONGEST), -2.0, 2.0),
              atoms=("center", "unit", "scale"),
              values=lambda x: (x - x.mean(1, keepdims=True))
              / np.sqrt(x.var(1, keepdims=True) + 1e-5)),
    _row_norm("rmsnorm", "x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-6)",
              "rmsnorm({v}) of each row", interval=_rms, atoms=("unit", "scale"),
              values=lambda x: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6)),
    _row_norm("unitnorm", "F.normalize(x, dim=1)", "unitnorm({v}) of each row", interval=_unit,
              atoms=("unit",), values=lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)),
    _row_norm("center", "x - x.mean(dim=1, keepdim=True)", "center({v}) of each row",
              interval=lambda v: Interval(
                  v.low - v.high, v.high - v.low, -v.width / 2, v.width / 2),
              atoms=("center",), values=lambda x: x - x.mean(1, keepdims=True)),
    _layout("cumsum", "torch.cumsum(x, dim=1)", "cumsum({v}) along each row",
            interval=total(USUAL), atoms=("cumsum",), values=lambda x: x.cumsum(1)),
    _layout("cummax", "torch.cummax(x, dim=1).values", "cummax({v}) along each row",
            interval=same, terms="1", atoms=("cummax",),
            values=lambda x: np.maximum.accumulate(x, 1)),
    _layout("transpose", "x.t().contiguous()", "transpose({v})",
            sizes=Sizes("nm", ((512, 512), (301, 133), (3, 5)), _GPU, varied=True), interval=same,
            terms="1", atoms=("transpose",), values=np.transpose),
    _column("colsum", "torch.sum(x, dim=0)", "colsum({v})", interval=total(USUAL),
            atoms=("colsum",), values=lambda x: x.sum(0, keepdims=True)),
    _column("colmean", "torch.mean(x, dim=0)", "colmean({v})", interval=mean,
            atoms=("colsum", "scale"), values=lambda x: x.mean(0, keepdims=True)),
    _column("colmax", "torch.max(x, dim=0).values", "colmax({v})", terms="1", atoms=("colext",),
            interval=lambda v: Interval(v.low, v.high, v.middle + v.width / 4, v.typical_high),
            values=lambda x: x.max(0, keepdims=True)),
    _layout("allmean", "torch.mean(x)", "mean({v}) of everything", terms="nm", any_order=True,
            atoms=("allsum", "scale"), values=lambda x: x.mean(keepdims=True)),
    _layout("matmul", "x @ u", "({v}) @ u",
            sizes=Sizes("nmr", ((96, 128, 64), (67, 75, 45), (3, 5, 4)),
                        ((4096, 4096, 4096), (1021, 2043, 1019), (3, 5, 4)), varied=True),
            others=(weight("u", "m r"),), x="n m", interval=_product, atoms=("matmul",),
            values=lambda x: x @ RIGHT, operands=(False, ("row",))),
)  # fmt: skip

_op = partial(
    Core,
    sizes=Sizes("nm", ((256, 192), (201, 133), (3, 5)), ((4096, 8192), (4093, 8191), (3, 5))),
    terms="m",
)
_Y, _G, _B = Given("y"), Given("g"), weight("b", "m")
_LABELS = Given("y", "n", "int64", 0.0, "m")
_OF_ROWS = Given("g", "n")


# --- with other inputs or other results, tier 1 --------------------------------------------------

_index = partial(_op, terms="1", output="int64", steps_before=False)
"""Where a term of x is extreme; the first place of equal ones, as PyTorch documents."""
_count = partial(_index, letters="c", choices=((1,), (2,), (3,), (5,), (6,)))
ARGMAX = (
    _index("argmax", "torch.argmax(x, dim=1)", "argmax({v}) of each row", dtypes=FLOATS[:2]),
    _index("argmin", "torch.argmin(x, dim=1)", "argmin({v}) of each row", dtypes=FLOATS[:2]),
    _index("argabsmax", "torch.argmax(x.abs(), dim=1)", "argmax |{v}| of each row",
           dtypes=FLOATS[:2]),
    _index("argabsmin", "torch.argmin(x.abs(), dim=1)", "argmin |{v}| of each row",
           dtypes=FLOATS[:2]),
    _index("argmaxdiff", "torch.argmax(x - y, dim=1)", "argmax({v} - y) of each row",
           others=(_Y,)),
    _index("argmindiff", "torch.argmin((x - y).abs(), dim=1)", "argmin |{v} - y| of each row",
           others=(_Y,)),
    _index("argmaxweighted", "torch.argmax(x * b, dim=1)",
           "argmax({v} * b) of each row; b a row vector", others=(_B,)),
    _index("argmaxshifted", "torch.argmax(x + b, dim=1)",
           "argmax({v} + b) of each row; b a row vector", others=(_B,)),
    _count("countabove", "(x > {c} / 4).sum(dim=1)",
           "how many of {v} are above {c}/4 in each row"),
    _count("countbelow", "(x < {c} / 4).sum(dim=1)",
           "how many of {v} are below {c}/4 in each row"),
)  # fmt: skip
MATVEC = (
    _op("matvec", "x @ b", "({v}) @ b", others=(_B,), interval=_scaled(8192.0),
        atoms=("mul_row", "sum"), dtypes=FLOATS, x_range=(-2.0, 2.0)),
    _op("matvecmax", "(x * b).max(dim=1).values", "max_j of ({v})_j * b_j", others=(_B,),
        interval=within(-16.0, 16.0, 2.4, 4.0), atoms=("mul_row", "ext"), terms="1",
        steps_before=False),  # a relu or a clamp from below would change no largest product
)  # fmt: skip
SIMILARITY = (
    _op("cosine", "F.cosine_similarity(x, y, dim=1)", "cosine({v}, y) of each row",
        others=(_Y,), interval=within(-1.0, 1.0, -0.3, 0.9)),
    _op("dot", "(x * y).sum(dim=1)", "dot({v}, y) of each row", others=(_Y,),
        interval=_scaled(16384.0), atoms=("mul_full", "sum"), x_range=(-2.0, 2.0), dtypes=FLOATS),
    _op("euclid", "torch.linalg.vector_norm(x - y, dim=1)", "|{v} - y| of each row",
        others=(_Y,), interval=within(0.0, 4000.0, 5.0, 40.0),
        atoms=("add_full", "square", "sum", "sqrt")),
    _op("chebyshev", "(x - y).abs().amax(dim=1)", "max |{v} - y| of each row", others=(_Y,),
        interval=within(0.0, 150.0, 1.0, 5.0), atoms=("add_full", "abs", "ext"), terms="1"),
)  # fmt: skip

# --- tier 2: normalisation over groups of channels ------------------------------------------------

_norm = partial(
    Core,
    sizes=Sizes(
        "bchw",
        ((4, 16, 12, 12), (3, 8, 7, 9), (1, 8, 2, 3)),
        ((32, 64, 128, 128), (5, 24, 127, 65), (1, 8, 2, 3)),
        fixed="c",
    ),
    interval=within(-256.0, 256.0, -2.0, 2.0),
    check=lambda params: all(p in (1, 2, 4, 8) for p in params),
)
_grouped = partial(_norm, letters="g", choices=((1,), (2,), (4,), (8,)), terms="hwc/g")
GROUP_NORM = (
    _grouped("groupnorm", "F.group_norm(x, {g}, g, b)", "groupnorm({v}, g, b)",
             others=(weight("g", "c"), weight("b", "c"))),
    _norm("instancenorm", "F.instance_norm(x)", "instancenorm({v})", terms="hw"),
    _grouped("grouprms", "(x.view(x.size(0), {g}, -1) * torch.rsqrt(x.view(x.size(0), {g}, -1)"
             ".square().mean(dim=2, keepdim=True) + 1e-6)).view_as(x)",
             "rmsnorm({v}) over {g} groups of channels"),
)  # fmt: skip

# --- tier 3: losses and backward passes -----------------------------------------------------------

CROSS_ENTROPY = (
    _op("crossentropy", "F.cross_entropy(x, y, reduction='none')",
        "cross_entropy({v}, y) of each row", others=(_LABELS,),
        interval=within(0.0, 400.0, 1.0, 10.0)),
    _op("labelprobability", "torch.softmax(x, dim=1).gather(1, y[:, None]).squeeze(1)",
        "softmax({v}) at the label y of each row", others=(_LABELS,), atoms=("label_softmax",)),
    _op("smoothentropy", "F.cross_entropy(x, y, reduction='none', label_smoothing=0.1)",
        "cross_entropy({v}, y) of each row with labels smoothed by 0.1", others=(_LABELS,),
        interval=within(0.0, 400.0, 1.0, 10.0), atoms=("crossentropy",)),
)  # fmt: skip
ROW_LOSS = (
    _op("huberrow", "F.smooth_l1_loss(x, y, reduction='none').mean(dim=1)",
        "smooth L1 loss of {v} and y, mean of each row", others=(_Y,),
        interval=within(0.0, 150.0, 0.3, 3.0)),
    _op("bcerow", "F.binary_cross_entropy_with_logits(x, y, reduction='none').mean(dim=1)",
        "binary cross entropy of the logits {v} and y, mean of each row",
        others=(Given("y", low=0.0, high=1.0),), interval=within(0.0, 150.0, 0.3, 2.0)),
    _op("klrow", "F.kl_div(x, y, reduction='none').sum(dim=1)",
        "KL divergence of y from exp({v}), sum of each row",
        others=(Given("y", low=0.05, high=1.0),)),
    _op("hingerow", "torch.relu(1 - x * y).mean(dim=1)",
        "hinge loss of {v} and y, mean of each row", others=(Given("y", low=-1.0, high=1.0),),
        interval=within(0.0, 150.0, 0.5, 2.0)),
    _op("logcoshrow",
        ("d = (x - y).abs()",
         "(d + torch.log1p(torch.exp(-2 * d)) - 0.6931471805599453).mean(dim=1)"),
        "log cosh loss of {v} and y, mean of each row", others=(_Y,),
        interval=within(0.0, 150.0, 0.3, 3.0)),
)  # fmt: skip
SOFTMAX_BACKWARD = (
    _op("softmaxbackward",
        ("p = torch.softmax(x, dim=1)", "p * (g - (p * g).sum(dim=1, keepdim=True))"),
        "gradient of softmax({v}) for g", others=(_G,)),
    _op("logsoftmaxbackward",
        ("p = torch.softmax(x, dim=1)", "g - p * g.sum(dim=1, keepdim=True)"),
        "gradient of log_softmax({v}) for g", others=(_G,),
        interval=within(-4000.0, 4000.0, -2.5, 2.5)),
    _op("logsumexpbackward", "g[:, None] * torch.softmax(x, dim=1)",
        "gradient of logsumexp({v}) for g", others=(_OF_ROWS,)),
)  # fmt: skip
NORM_BACKWARD = (
    _op("layernormbackward",
        ("d = x - x.mean(dim=1, keepdim=True)",
         "s = torch.rsqrt(d.square().mean(dim=1, keepdim=True) + 1e-5)",
         "h = d * s",
         "s * (g - g.mean(dim=1, keepdim=True) - h * (g * h).mean(dim=1, keepdim=True))"),
        "gradient of layernorm({v}) for g", others=(_G,)),
    _op("rmsnormbackward",
        ("s = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-5)",
         "h = x * s",
         "s * (g - h * (g * h).mean(dim=1, keepdim=True))"),
        "gradient of rmsnorm({v}) for g", others=(_G,)),
    _op("varbackward", "2 * g[:, None] * (x - x.mean(dim=1, keepdim=True)) / x.size(1)",
        "gradient of the row variances of {v} for g", others=(_OF_ROWS,)),
)  # fmt: skip
