"""Workloads along rows: argmax, matrix-vector, distances, group norm, losses, backward passes.

Each is a few passes over the row and a result, written by `kernels_rows` for one thread, a block
or a warp per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.kernel_text import ADD, MAX, MIN, Combine, Lines
from coding_framework.data.synthesis.kernels_rows import (
    PER_ROW,
    Pass,
    RowLaunch,
    RowWork,
    row_kernels,
)
from coding_framework.data.synthesis.styles import Style
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Shapes,
    Size,
    Workload,
    WorkloadOp,
    weight,
    within,
)
from coding_framework.types import DType, KernelExample

_SIZES: tuple[Size, Size, Size] = ((256, 192), (201, 133), (3, 5))
_GPU_SIZES: tuple[Size, Size, Size] = ((4096, 8192), (4093, 8191), (3, 5))
_PLANES: tuple[Size, Size, Size] = ((4, 16, 12, 12), (3, 8, 7, 9), (1, 8, 2, 3))
_GPU_PLANES: tuple[Size, Size, Size] = ((32, 64, 128, 128), (5, 24, 127, 65), (1, 8, 2, 3))
_FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What a row's result is made of, in C. `load` gives {v} from x and reads the other inputs;
    `result` reads the passes' variables."""

    passes: tuple[Pass, ...]
    result: str
    load: tuple[str, ...] = ()
    """Statements after x's value and the steps before; may define further values."""
    per_element: bool = False
    launch: RowLaunch | None = None


def _kernels(plan: RowPlan, workload: Workload, style: Style) -> tuple[KernelExample, ...]:
    v, named = style.value, workload.named
    load = [
        f"float {v} = x[r * w + j];",
        *workload.pre(v),
        *(line.format(v=v, **named) for line in plan.load),
    ]
    value = plan.result.format(v=v, **named)
    result: Lines
    if plan.per_element:
        result = [*load, f"{v} = {value};", *workload.post(v), f"{style.out}[r * w + j] = {v};"]
    else:
        result = [f"float {v} = {value};", *workload.post(v), f"{style.out}[r] = {v};"]
    launch = plan.launch or (RowLaunch() if plan.per_element else PER_ROW)
    filled = RowLaunch(launch.sizes.format(**named), launch.allocate, launch.arguments)
    passes = tuple(replace(p, term=p.term.replace("LIMIT", _limit(named))) for p in plan.passes)
    return row_kernels(
        RowWork(
            subject=workload,
            passes=passes,
            load=load,
            result=result,
            per_element=plan.per_element,
            launch=filled,
        ),
        style,
    )


def _limit(named: dict[str, int]) -> str:
    """A count's threshold, in quarters, as a C literal."""
    return f"{named.get('c', 0) / 4}f"


def _op(
    name: str,
    plan: RowPlan,
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
        kernels=partial(_kernels, plan),
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


_SUM = Pass("a", ADD, "{v}")
_MEAN = Pass("a", ADD, "{v}", "a = a / w;")
_TOP = Pass("a", MAX, "{v}")
_READ_Y = "float y0 = y[r * w + j];"
_READ_G = "float g0 = g[r * w + j];"

# --- tier 1 --------------------------------------------------------------------------------------

_INDEX = RowLaunch(allocate="torch::empty({m}, x.options().dtype(torch::kInt64))")


def _index_op(
    name: str, term: str, torch: str, spoken: str, combine: Combine = MAX, read: str = ""
) -> WorkloadOp:
    """Where `term` of x is extreme; the first place of equal ones, as PyTorch documents."""
    passes = (Pass("a", combine, term), Pass("e", MIN, f"({term} == a ? j : w)"))
    others = {"y": _like_x("y"), "b": _row_vector}
    reads = {"y": (_READ_Y,), "b": ("float b0 = b[j];",)}
    return _op(
        name,
        RowPlan(passes, "e", reads.get(read, ()), launch=_INDEX),
        (torch,),
        spoken,
        others.get(read, lambda rows, columns: ()),
        output="int64",
        sums=False,
        dtypes=_FLOATS[:2] if not read else _FLOATS[:1],
        steps_before=False,
    )


def _count_op(name: str, sign: str, spoken: str) -> WorkloadOp:
    plan = RowPlan((Pass("a", ADD, f"({{v}} {sign} LIMIT ? 1.0f : 0.0f)"),), "a", launch=_INDEX)
    return _op(
        name,
        plan,
        (f"(x {sign} {{c}} / 4).sum(dim=1)",),
        spoken,
        output="int64",
        sums=False,
        letters="c",
        choices=((1,), (2,), (3,), (5,), (6,)),
        steps_before=False,
    )


ARGMAX = (
    _index_op("argmax", "{v}", "torch.argmax(x, dim=1)", "argmax({v}) of each row"),
    _index_op("argmin", "{v}", "torch.argmin(x, dim=1)", "argmin({v}) of each row", MIN),
    _index_op(
        "argabsmax", "fabsf({v})", "torch.argmax(x.abs(), dim=1)", "argmax |{v}| of each row"
    ),
    _index_op(
        "argabsmin", "fabsf({v})", "torch.argmin(x.abs(), dim=1)", "argmin |{v}| of each row", MIN
    ),
    _index_op(
        "argmaxdiff",
        "({v} - y0)",
        "torch.argmax(x - y, dim=1)",
        "argmax({v} - y) of each row",
        read="y",
    ),
    _index_op(
        "argmindiff",
        "fabsf({v} - y0)",
        "torch.argmin((x - y).abs(), dim=1)",
        "argmin |{v} - y| of each row",
        MIN,
        read="y",
    ),
    _index_op(
        "argmaxweighted",
        "({v} * b0)",
        "torch.argmax(x * b, dim=1)",
        "argmax({v} * b) of each row; b a row vector",
        read="b",
    ),
    _index_op(
        "argmaxshifted",
        "({v} + b0)",
        "torch.argmax(x + b, dim=1)",
        "argmax({v} + b) of each row; b a row vector",
        read="b",
    ),
    _count_op("countabove", ">", "how many of {v} are above {c}/4 in each row"),
    _count_op("countbelow", "<", "how many of {v} are below {c}/4 in each row"),
)
MATVEC = (
    _op(
        "matvec",
        RowPlan((_SUM,), "a", ("{v} = {v} * float(b[j]);",)),
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
        RowPlan((_TOP,), "a", ("{v} = {v} * float(b[j]);",)),
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
        RowPlan(
            (
                Pass("a", ADD, "{v} * {v}"),
                Pass("e", ADD, "y0 * y0"),
                Pass("c", ADD, "{v} * y0"),
            ),
            "c / (fmaxf(sqrtf(a), 1e-8f) * fmaxf(sqrtf(e), 1e-8f))",
            (_READ_Y,),
        ),
        ("F.cosine_similarity(x, y, dim=1)",),
        "cosine({v}, y) of each row",
        _like_x("y"),
        interval=within(-1.0, 1.0, -0.3, 0.9),
    ),
    _op(
        "dot",
        RowPlan((Pass("a", ADD, "{v} * y0"),), "a", (_READ_Y,)),
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
        RowPlan((Pass("a", ADD, "({v} - y0) * ({v} - y0)"),), "sqrtf(a)", (_READ_Y,)),
        ("torch.linalg.vector_norm(x - y, dim=1)",),
        "|{v} - y| of each row",
        _like_x("y"),
        interval=within(0.0, 4000.0, 5.0, 40.0),
        atoms=("add_full", "square", "sum", "sqrt"),
    ),
    _op(
        "chebyshev",
        RowPlan((Pass("a", MAX, "fabsf({v} - y0)"),), "a", (_READ_Y,)),
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


_STANDARD = (_MEAN, Pass("e", ADD, "({v} - a) * ({v} - a)"))


def _norm_op(
    name: str,
    plan: RowPlan,
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
        kernels=partial(_kernels, plan),
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
        RowPlan(
            _STANDARD,
            "({v} - a) * rsqrtf(e / w + 1e-5f) * g[(r * w + j) / h % c] + b[(r * w + j) / h % c]",
            per_element=True,
            launch=RowLaunch(
                "int c = x.size(1), h = x.size(2) * x.size(3), m = x.size(0) * {g}, "
                "w = c / {g} * h;",
                arguments=("m", "w", "c", "h"),
            ),
        ),
        "F.group_norm(x, {g}, g, b)",
        "groupnorm({v}, g, b)",
        _group_inputs,
        "g",
        ((1,), (2,), (4,), (8,)),
    ),
    _norm_op(
        "instancenorm",
        RowPlan(
            _STANDARD,
            "({v} - a) * rsqrtf(e / w + 1e-5f)",
            per_element=True,
            launch=RowLaunch("int m = x.size(0) * x.size(1), w = x.size(2) * x.size(3);"),
        ),
        "F.instance_norm(x)",
        "instancenorm({v})",
        _instance_inputs,
    ),
    _norm_op(
        "grouprms",
        RowPlan(
            (Pass("a", ADD, "{v} * {v}"),),
            "{v} * rsqrtf(a / w + 1e-6f)",
            per_element=True,
            launch=RowLaunch(
                "int m = x.size(0) * {g}, w = x.numel() / m;",
            ),
        ),
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


_EXPONENTIALS = Pass("e", ADD, "expf({v} - a)")
CROSS_ENTROPY = (
    _op(
        "crossentropy",
        RowPlan(
            (
                _TOP,
                _EXPONENTIALS,
                Pass("c", ADD, "(j == y[r] ? {v} : 0.0f)"),
            ),
            "a + logf(e) - c",
        ),
        ("F.cross_entropy(x, y, reduction='none')",),
        "cross_entropy({v}, y) of each row",
        _labels,
        interval=within(0.0, 400.0, 1.0, 10.0),
    ),
    _op(
        "labelprobability",
        RowPlan(
            (_TOP, _EXPONENTIALS, Pass("c", ADD, "(j == y[r] ? {v} : 0.0f)")),
            "expf(c - a) / e",
        ),
        ("torch.softmax(x, dim=1).gather(1, y[:, None]).squeeze(1)",),
        "softmax({v}) at the label y of each row",
        _labels,
        atoms=("label_softmax",),
    ),
    _op(
        "smoothentropy",
        RowPlan(
            (
                _TOP,
                _EXPONENTIALS,
                Pass("c", ADD, "(j == y[r] ? 0.9f * {v} : 0.0f) + 0.1f * {v} / w"),
            ),
            "a + logf(e) - c",
        ),
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
        RowPlan(
            (
                Pass(
                    "a",
                    ADD,
                    "(fabsf({v} - y0) < 1.0f ? 0.5f * ({v} - y0) * ({v} - y0) "
                    ": fabsf({v} - y0) - 0.5f)",
                ),
            ),
            "a / w",
            (_READ_Y,),
        ),
        ("F.smooth_l1_loss(x, y, reduction='none').mean(dim=1)",),
        "smooth L1 loss of {v} and y, mean of each row",
        _like_x("y"),
        interval=within(0.0, 150.0, 0.3, 3.0),
    ),
    _op(
        "bcerow",
        RowPlan(
            (Pass("a", ADD, "fmaxf({v}, 0.0f) - {v} * y0 + log1pf(expf(-fabsf({v})))"),),
            "a / w",
            (_READ_Y,),
        ),
        ("F.binary_cross_entropy_with_logits(x, y, reduction='none').mean(dim=1)",),
        "binary cross entropy of the logits {v} and y, mean of each row",
        _like_x("y", 0.0, 1.0),
        interval=within(0.0, 150.0, 0.3, 2.0),
    ),
    _op(
        "klrow",
        RowPlan((Pass("a", ADD, "y0 * (logf(y0) - {v})"),), "a", (_READ_Y,)),
        ("F.kl_div(x, y, reduction='none').sum(dim=1)",),
        "KL divergence of y from exp({v}), sum of each row",
        _like_x("y", 0.05, 1.0),
        atoms=("klrow",),
    ),
    _op(
        "hingerow",
        RowPlan((Pass("a", ADD, "fmaxf(1.0f - {v} * y0, 0.0f)"),), "a / w", (_READ_Y,)),
        ("torch.relu(1 - x * y).mean(dim=1)",),
        "hinge loss of {v} and y, mean of each row",
        _like_x("y", -1.0, 1.0),
        interval=within(0.0, 150.0, 0.5, 2.0),
    ),
    _op(
        "logcoshrow",
        RowPlan(
            (
                Pass(
                    "a",
                    ADD,
                    "fabsf({v} - y0) + log1pf(expf(-2.0f * fabsf({v} - y0))) - 0.69314718f",
                ),
            ),
            "a / w",
            (_READ_Y,),
        ),
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
        RowPlan(
            (
                _TOP,
                _EXPONENTIALS,
                Pass("c", ADD, "expf({v} - a) / e * g0"),
            ),
            "expf({v} - a) / e * (g0 - c)",
            (_READ_G,),
            per_element=True,
        ),
        ("p = torch.softmax(x, dim=1)", "p * (g - (p * g).sum(dim=1, keepdim=True))"),
        "gradient of softmax({v}) for g",
        _like_x("g"),
    ),
    _op(
        "logsoftmaxbackward",
        RowPlan(
            (_TOP, _EXPONENTIALS, Pass("c", ADD, "g0")),
            "g0 - expf({v} - a) / e * c",
            (_READ_G,),
            per_element=True,
        ),
        ("p = torch.softmax(x, dim=1)", "g - p * g.sum(dim=1, keepdim=True)"),
        "gradient of log_softmax({v}) for g",
        _like_x("g"),
        interval=within(-4000.0, 4000.0, -2.5, 2.5),
    ),
    _op(
        "logsumexpbackward",
        RowPlan(
            (_TOP, _EXPONENTIALS),
            "g[r] * expf({v} - a) / e",
            per_element=True,
        ),
        ("g[:, None] * torch.softmax(x, dim=1)",),
        "gradient of logsumexp({v}) for g",
        lambda rows, columns: (Given("g", (rows,)),),
    ),
)
_SCALE = "rsqrtf(e / w + 1e-5f)"
NORM_BACKWARD = (
    _op(
        "layernormbackward",
        RowPlan(
            (
                *_STANDARD,
                Pass("c", ADD, "g0", "c = c / w;"),
                Pass("b", ADD, f"g0 * ({{v}} - a) * {_SCALE}", "b = b / w;"),
            ),
            f"{_SCALE} * (g0 - c - ({{v}} - a) * {_SCALE} * b)",
            (_READ_G,),
            per_element=True,
        ),
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
        RowPlan(
            (
                Pass("e", ADD, "{v} * {v}"),
                Pass("c", ADD, f"g0 * {{v}} * {_SCALE}", "c = c / w;"),
            ),
            f"{_SCALE} * (g0 - {{v}} * {_SCALE} * c)",
            (_READ_G,),
            per_element=True,
        ),
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
        RowPlan(
            (_MEAN,),
            "2.0f * g[r] * ({v} - a) / w",
            per_element=True,
        ),
        ("2 * g[:, None] * (x - x.mean(dim=1, keepdim=True)) / x.size(1)",),
        "gradient of the row variances of {v} for g",
        lambda rows, columns: (Given("g", (rows,)),),
    ),
)
