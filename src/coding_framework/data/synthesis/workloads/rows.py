"""Workloads along rows: argmax, matrix-vector, distances, group norm, losses, backward passes."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Shapes,
    Size,
    WorkloadOp,
    weight,
    within,
)
from coding_framework.types import DType

_SIZES: tuple[Size, Size, Size] = ((256, 192), (201, 133), (3, 5))
_GPU_SIZES: tuple[Size, Size, Size] = ((4096, 8192), (4093, 8191), (3, 5))
_PLANES: tuple[Size, Size, Size] = ((4, 16, 12, 12), (3, 8, 7, 9), (1, 8, 2, 3))
_GPU_PLANES: tuple[Size, Size, Size] = ((32, 64, 128, 128), (5, 24, 127, 65), (1, 8, 2, 3))
_FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")


def _op(
    name: str,
    torch: tuple[str, ...],
    spoken: str,
    others: Callable[[int, int], tuple[Given, ...]] = lambda rows, columns: (),
    *,
    interval: Callable[[Interval], Interval] | None = None,
    atoms: tuple[str, ...] | None = None,
    dtypes: tuple[DType, ...] = ("float32",),
    output: DType | None = None,
    sums: bool = True,
    x_range: tuple[float, float] | None = None,
    letters: str = "",
    choices: tuple[Params, ...] = ((),),
    steps_before: bool = True,
) -> WorkloadOp:
    """An operation on the rows of a matrix x; `others` gives its further inputs at a size."""

    def inputs(params: Params, size: Size) -> tuple[Given, ...]:
        return (Given("x", size), *others(*size))

    def terms(params: Params, shapes: Shapes) -> int:
        return shapes[0][1] if sums else 1

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=torch,
        spoken=spoken,
        sizes=_SIZES,
        gpu_sizes=_GPU_SIZES,
        interval=interval,
        steps_before=steps_before,
        letters=letters,
        choices=choices,
        dtypes=dtypes,
        output=output,
        terms=terms,
        atoms=atoms,
        x_range=x_range,
    )


def _like_x(name: str, low: float = -2.0, high: float = 2.0) -> Callable[..., tuple[Given, ...]]:
    return lambda rows, columns: (Given(name, (rows, columns), low=low, high=high),)


def _row_vector(rows: int, columns: int) -> tuple[Given, ...]:
    return (weight("b", columns),)


def _scaled(factor: float) -> Callable[[Interval], Interval]:
    """Of sums of products with values of the other input: bounds of the longest row."""

    def interval(v: Interval) -> Interval:
        largest = max(abs(v.low), abs(v.high))
        return Interval(-factor * largest, factor * largest, -2.0 * largest, 2.0 * largest)

    return interval


# --- tier 1 --------------------------------------------------------------------------------------


def _index_op(name: str, torch: str, spoken: str, read: str = "") -> WorkloadOp:
    """Where a term of x is extreme; the first place of equal ones, as PyTorch documents."""
    others = {"y": _like_x("y"), "b": _row_vector}
    return _op(
        name,
        (torch,),
        spoken,
        others.get(read, lambda rows, columns: ()),
        output="int64",
        sums=False,
        dtypes=_FLOATS[:2] if not read else _FLOATS[:1],
        steps_before=False,
    )


def _count_op(name: str, sign: str, spoken: str) -> WorkloadOp:
    return _op(
        name,
        (f"(x {sign} {{c}} / 4).sum(dim=1)",),
        spoken,
        output="int64",
        sums=False,
        letters="c",
        choices=((1,), (2,), (3,), (5,), (6,)),
        steps_before=False,
    )


ARGMAX = (
    _index_op("argmax", "torch.argmax(x, dim=1)", "argmax({v}) of each row"),
    _index_op("argmin", "torch.argmin(x, dim=1)", "argmin({v}) of each row"),
    _index_op("argabsmax", "torch.argmax(x.abs(), dim=1)", "argmax |{v}| of each row"),
    _index_op("argabsmin", "torch.argmin(x.abs(), dim=1)", "argmin |{v}| of each row"),
    _index_op("argmaxdiff", "torch.argmax(x - y, dim=1)", "argmax({v} - y) of each row", "y"),
    _index_op(
        "argmindiff", "torch.argmin((x - y).abs(), dim=1)", "argmin |{v} - y| of each row", "y"
    ),
    _index_op(
        "argmaxweighted",
        "torch.argmax(x * b, dim=1)",
        "argmax({v} * b) of each row; b a row vector",
        "b",
    ),
    _index_op(
        "argmaxshifted",
        "torch.argmax(x + b, dim=1)",
        "argmax({v} + b) of each row; b a row vector",
        "b",
    ),
    _count_op("countabove", ">", "how many of {v} are above {c}/4 in each row"),
    _count_op("countbelow", "<", "how many of {v} are below {c}/4 in each row"),
)
MATVEC = (
    _op(
        "matvec",
        ("x @ b",),
        "({v}) @ b",
        _row_vector,
        interval=_scaled(8192.0),
        atoms=("mul_row", "sum"),
        dtypes=_FLOATS,
        x_range=(-2.0, 2.0),
    ),
    _op(
        "matvecmax",
        ("(x * b).max(dim=1).values",),
        "max_j of ({v})_j * b_j",
        _row_vector,
        interval=within(-16.0, 16.0, 2.4, 4.0),
        atoms=("mul_row", "ext"),
        sums=False,
        steps_before=False,  # a relu or a clamp from below would change no largest product
    ),
)
SIMILARITY = (
    _op(
        "cosine",
        ("F.cosine_similarity(x, y, dim=1)",),
        "cosine({v}, y) of each row",
        _like_x("y"),
        interval=within(-1.0, 1.0, -0.3, 0.9),
    ),
    _op(
        "dot",
        ("(x * y).sum(dim=1)",),
        "dot({v}, y) of each row",
        _like_x("y"),
        interval=_scaled(16384.0),
        atoms=("mul_full", "sum"),
        x_range=(-2.0, 2.0),
        dtypes=_FLOATS,
    ),
    _op(
        "euclid",
        ("torch.linalg.vector_norm(x - y, dim=1)",),
        "|{v} - y| of each row",
        _like_x("y"),
        interval=within(0.0, 4000.0, 5.0, 40.0),
        atoms=("add_full", "square", "sum", "sqrt"),
    ),
    _op(
        "chebyshev",
        ("(x - y).abs().amax(dim=1)",),
        "max |{v} - y| of each row",
        _like_x("y"),
        interval=within(0.0, 150.0, 1.0, 5.0),
        atoms=("add_full", "abs", "ext"),
        sums=False,
    ),
)

# --- tier 2: normalisation over groups of channels ------------------------------------------------


def _group_inputs(params: Params, size: Size) -> tuple[Given, ...]:
    channels = size[1]
    return (Given("x", size), weight("g", channels), weight("b", channels))


def _instance_inputs(params: Params, size: Size) -> tuple[Given, ...]:
    return (Given("x", size),)


def _norm_op(
    name: str,
    torch: str,
    spoken: str,
    inputs: Callable[[Params, Size], tuple[Given, ...]],
    letters: str = "",
    choices: tuple[Params, ...] = ((),),
) -> WorkloadOp:
    def terms(params: Params, shapes: Shapes) -> int:
        _, channels, height, width = shapes[0]
        return height * width * (channels // params[0] if params else 1)

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(torch,),
        spoken=spoken,
        sizes=_PLANES,
        gpu_sizes=_GPU_PLANES,
        interval=within(-256.0, 256.0, -2.0, 2.0),
        letters=letters,
        choices=choices,
        terms=terms,
        fixed_axes=(1,),
        check=lambda params: all(p in (1, 2, 4, 8) for p in params),
    )


GROUP_NORM = (
    _norm_op(
        "groupnorm",
        "F.group_norm(x, {g}, g, b)",
        "groupnorm({v}, g, b)",
        _group_inputs,
        "g",
        ((1,), (2,), (4,), (8,)),
    ),
    _norm_op(
        "instancenorm",
        "F.instance_norm(x)",
        "instancenorm({v})",
        _instance_inputs,
    ),
    _norm_op(
        "grouprms",
        "(x.view(x.size(0), {g}, -1) * torch.rsqrt(x.view(x.size(0), {g}, -1)"
        ".square().mean(dim=2, keepdim=True) + 1e-6)).view_as(x)",
        "rmsnorm({v}) over {g} groups of channels",
        _instance_inputs,
        "g",
        ((1,), (2,), (4,), (8,)),
    ),
)

# --- tier 3: losses and backward passes -----------------------------------------------------------


def _labels(rows: int, columns: int) -> tuple[Given, ...]:
    return (Given("y", (rows,), "int64", 0.0, columns - 1.0),)


CROSS_ENTROPY = (
    _op(
        "crossentropy",
        ("F.cross_entropy(x, y, reduction='none')",),
        "cross_entropy({v}, y) of each row",
        _labels,
        interval=within(0.0, 400.0, 1.0, 10.0),
    ),
    _op(
        "labelprobability",
        ("torch.softmax(x, dim=1).gather(1, y[:, None]).squeeze(1)",),
        "softmax({v}) at the label y of each row",
        _labels,
        atoms=("label_softmax",),
    ),
    _op(
        "smoothentropy",
        ("F.cross_entropy(x, y, reduction='none', label_smoothing=0.1)",),
        "cross_entropy({v}, y) of each row with labels smoothed by 0.1",
        _labels,
        interval=within(0.0, 400.0, 1.0, 10.0),
        atoms=("crossentropy",),
    ),
)
ROW_LOSS = (
    _op(
        "huberrow",
        ("F.smooth_l1_loss(x, y, reduction='none').mean(dim=1)",),
        "smooth L1 loss of {v} and y, mean of each row",
        _like_x("y"),
        interval=within(0.0, 150.0, 0.3, 3.0),
    ),
    _op(
        "bcerow",
        ("F.binary_cross_entropy_with_logits(x, y, reduction='none').mean(dim=1)",),
        "binary cross entropy of the logits {v} and y, mean of each row",
        _like_x("y", 0.0, 1.0),
        interval=within(0.0, 150.0, 0.3, 2.0),
    ),
    _op(
        "klrow",
        ("F.kl_div(x, y, reduction='none').sum(dim=1)",),
        "KL divergence of y from exp({v}), sum of each row",
        _like_x("y", 0.05, 1.0),
        atoms=("klrow",),
    ),
    _op(
        "hingerow",
        ("torch.relu(1 - x * y).mean(dim=1)",),
        "hinge loss of {v} and y, mean of each row",
        _like_x("y", -1.0, 1.0),
        interval=within(0.0, 150.0, 0.5, 2.0),
    ),
    _op(
        "logcoshrow",
        (
            "d = (x - y).abs()",
            "(d + torch.log1p(torch.exp(-2 * d)) - 0.6931471805599453).mean(dim=1)",
        ),
        "log cosh loss of {v} and y, mean of each row",
        _like_x("y"),
        interval=within(0.0, 150.0, 0.3, 3.0),
    ),
)
SOFTMAX_BACKWARD = (
    _op(
        "softmaxbackward",
        ("p = torch.softmax(x, dim=1)", "p * (g - (p * g).sum(dim=1, keepdim=True))"),
        "gradient of softmax({v}) for g",
        _like_x("g"),
    ),
    _op(
        "logsoftmaxbackward",
        ("p = torch.softmax(x, dim=1)", "g - p * g.sum(dim=1, keepdim=True)"),
        "gradient of log_softmax({v}) for g",
        _like_x("g"),
        interval=within(-4000.0, 4000.0, -2.5, 2.5),
    ),
    _op(
        "logsumexpbackward",
        ("g[:, None] * torch.softmax(x, dim=1)",),
        "gradient of logsumexp({v}) for g",
        lambda rows, columns: (Given("g", (rows,)),),
    ),
)
NORM_BACKWARD = (
    _op(
        "layernormbackward",
        (
            "d = x - x.mean(dim=1, keepdim=True)",
            "s = torch.rsqrt(d.square().mean(dim=1, keepdim=True) + 1e-5)",
            "h = d * s",
            "s * (g - g.mean(dim=1, keepdim=True) - h * (g * h).mean(dim=1, keepdim=True))",
        ),
        "gradient of layernorm({v}) for g",
        _like_x("g"),
    ),
    _op(
        "rmsnormbackward",
        (
            "s = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-5)",
            "h = x * s",
            "s * (g - h * (g * h).mean(dim=1, keepdim=True))",
        ),
        "gradient of rmsnorm({v}) for g",
        _like_x("g"),
    ),
    _op(
        "varbackward",
        ("2 * g[:, None] * (x - x.mean(dim=1, keepdim=True)) / x.size(1)",),
        "gradient of the row variances of {v} for g",
        lambda rows, columns: (Given("g", (rows,)),),
    ),
)
