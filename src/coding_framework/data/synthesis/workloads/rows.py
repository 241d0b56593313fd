"""Workloads along rows: argmax, matrix-vector, distances, group norm, losses, backward passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import (
    FLOATS,
    Given,
    Sizes,
    WorkloadOp,
    weight,
    within,
)

_op = partial(
    WorkloadOp,
    sizes=Sizes("nm", ((256, 192), (201, 133), (3, 5)), ((4096, 8192), (4093, 8191), (3, 5))),
    terms="m",
)
_Y, _G, _B = Given("y"), Given("g"), weight("b", "m")
_LABELS = Given("y", "n", "int64", 0.0, "m")
_OF_ROWS = Given("g", "n")


def _scaled(factor: float) -> Callable[[Interval], Interval]:
    """Of sums of products with values of the other input: bounds of the longest row."""

    def interval(v: Interval) -> Interval:
        largest = max(abs(v.low), abs(v.high))
        return Interval(-factor * largest, factor * largest, -2.0 * largest, 2.0 * largest)

    return interval


# --- tier 1 --------------------------------------------------------------------------------------

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
    WorkloadOp,
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
