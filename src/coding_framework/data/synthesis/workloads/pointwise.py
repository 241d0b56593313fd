"""Elementwise workloads: several inputs of one shape, low precision, integers, gradients.

The optimised kernel moves 16 bytes an access, whatever the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.kernel_text import (
    Launch,
    Lines,
    block,
    guarded,
)
from coding_framework.data.synthesis.styles import Style
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Size,
    Workload,
    WorkloadOp,
    Writer,
    each,
    same,
    within,
)
from coding_framework.types import DType, KernelExample

_SIZES: tuple[Size, Size, Size] = ((128, 512), (61, 259), (3, 5))
_GPU_SIZES: tuple[Size, Size, Size] = ((4096, 8192), (4093, 8191), (3, 5))
_FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Formula:
    """A function of values at one place. {v} is x's value; others go by their name in braces."""

    c: str
    torch: str
    spoken: str


# --- kernels -------------------------------------------------------------------------------------


def _result(formula: Formula, workload: Workload, style: Style, reads: dict[str, str]) -> Lines:
    v = style.value
    text = formula.c.format(v=v, **reads, **workload.named)
    value = [] if text == v else [f"{v} = {text};"]
    return [*workload.pre(v), *value, *workload.post(v)]


def _value_type(workload: Workload) -> str:
    return "int" if workload.element == "int" else "float"


def _naive(formula: Formula, workload: Workload, style: Style) -> KernelExample:
    i, v, kind = style.index, style.value, _value_type(workload)
    cast = "" if workload.element == kind else kind
    reads = {n: f"{cast}({n}[{i}])" if cast else f"{n}[{i}]" for n, _ in workload.tensors[1:]}
    body = [
        f"{kind} {v} = x[{i}];",
        *_result(formula, workload, style, reads),
        f"{style.out}[{i}] = {v};",
    ]
    lines = [
        f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;",
        *guarded(style, f"{i} < n", f"{i} >= n", body),
    ]
    launch = _launch(style, style.block)
    return Writer(workload, style).example("naive", "one thread per element", launch, lines)


def _launch(style: Style, per_block: int) -> Launch:
    return Launch(
        sizes="int n = x.numel();",
        allocate="torch::empty_like(x)",
        grid=f"(n + {per_block - 1}) / {per_block}, {style.block}",
        arguments=["n"],
    )


def _packed(formula: Formula, workload: Workload, style: Style) -> KernelExample:
    v, kind, element = style.value, _value_type(workload), workload.element
    names = [n for n, _ in workload.tensors]
    lanes = 8 if workload.dtype in ("float16", "bfloat16") else 4
    body = _result(formula, workload, style, {n: n for n in names[1:]})
    parameters = ", ".join(f"{kind} {n}" for n in (v, *names[1:]))
    function = block(f"__device__ {kind} f({parameters})", [*body, f"return {v};"])
    write = Writer(workload, style)
    walk = write.body(
        """
int $i = (blockIdx.x * blockDim.x + threadIdx.x) * $lanes;
if ($i + $last < n) {
  $loads
  Pack r;
  for (int q = 0; q < $lanes; q++) r.e[q] = f($packed);
  *(Pack*)($o + $i) = r;
} else {
  for (; $i < n; $i++) $o[$i] = f($single);
}
""",
        lanes=lanes,
        last=lanes - 1,
        loads=[f"Pack {n}4 = *(const Pack*)({n} + {style.index});" for n in names],
        packed=", ".join(f"{n}4.e[q]" for n in names),
        single=", ".join(f"{n}[{style.index}]" for n in names),
    )
    pack = [f"struct alignas(16) Pack {{ {element} e[{lanes}]; }};"]
    comment = f"{lanes} elements per thread in one 16-byte access, scalar tail"
    launch = _launch(style, lanes * style.block)
    why = (
        f"16-byte loads and stores move {lanes} elements per instruction, so fewer instructions "
        "and more bytes in flight"
    )
    return write.example("vectorized", comment, launch, walk, why, [pack, function])


# --- the operations ------------------------------------------------------------------------------


def _op(
    name: str,
    formula: Formula,
    others: tuple[Given, ...] = (),
    *,
    interval: Callable[[Interval], Interval] | None = None,
    dtypes: tuple[DType, ...] = ("float32",),
    x_dtype: DType = "float32",
    x_range: tuple[float, float] | None = None,
    letters: str = "",
    choices: tuple[Params, ...] = ((),),
    atoms: tuple[str, ...] | None = None,
    steps_before: bool = True,
) -> WorkloadOp:
    """An operation on x and `others`, whose shapes are x's."""

    def inputs(params: Params, size: Size) -> tuple[Given, ...]:
        x = Given("x", size, x_dtype)
        return (x, *(Given(o.name, size, o.dtype, o.low, o.high) for o in others))

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(formula.torch,),
        spoken=formula.spoken,
        kernels=partial(each, (_naive, _packed), formula),
        sizes=_SIZES,
        gpu_sizes=_GPU_SIZES,
        interval=interval,
        steps_before=steps_before,
        letters=letters,
        choices=choices,
        dtypes=dtypes,
        output="int32" if x_dtype == "int32" else None,
        atoms=atoms,
        x_range=x_range,
    )


_Y = Given("y", ())
_UNIT = Given("z", (), low=0.0, high=1.0)
_POSITIVE = Given("z", (), low=0.5, high=2.0)
_ANY = Given("z", ())

LOW_PRECISION = (
    _op(
        "elementwise",
        Formula("{v}", "x", "{v}"),
        interval=same,
        dtypes=("float16", "bfloat16"),
        atoms=(),
    ),
)
SELECT = tuple(
    _op(
        f"select{word}",
        Formula(
            f"{{v}} {sign} {{y}} ? {{v}} : {{z}}",
            f"torch.where(x {sign} y, x, z)",
            f"({{v}} {sign} y ? {{v}} : z)",
        ),
        (_Y, _ANY),
        interval=lambda v: Interval.of(min(v.low, -2.0), max(v.high, 2.0)),
        dtypes=_FLOATS[:1],
    )
    for word, sign in (("gt", ">"), ("lt", "<"))
)
MULTIPLY_ADD = (
    _op(
        "addcmul",
        Formula("{v} + {y} * {z}", "torch.addcmul(x, y, z)", "({v} + y * z)"),
        (_Y, _ANY),
        interval=lambda v: Interval.of(v.low - 4.0, v.high + 4.0),
        dtypes=_FLOATS,
    ),
    _op(
        "addcdiv",
        Formula("{v} + {y} / {z}", "torch.addcdiv(x, y, z)", "({v} + y / z)"),
        (_Y, _POSITIVE),
        interval=lambda v: Interval.of(v.low - 4.0, v.high + 4.0),
    ),
    _op(
        "lerp",
        Formula("{v} + {z} * ({y} - {v})", "torch.lerp(x, y, z)", "lerp({v}, y, z)"),
        (_Y, _UNIT),
        interval=lambda v: Interval.of(min(v.low, -2.0), max(v.high, 2.0)),
    ),
)


def _integer(name: str, c: str, torch: str, spoken: str, *constants: int) -> WorkloadOp:
    return _op(
        name,
        Formula(c, torch, spoken),
        (Given("y", (), "int32", 0.0, 10_000.0),),
        x_dtype="int32",
        x_range=(0.0, 10_000.0),
        letters="c",
        choices=tuple((c,) for c in constants),
        steps_before=False,
    )


INTEGER = (
    _integer("intmad", "{v} * {c} + {y}", "x * {c} + y", "{v} * {c} + y", 2, 3, 5, 7, 11, 100),
    _integer("intmod", "({v} + {y}) % {c}", "(x + y) % {c}", "({v} + y) mod {c}", 7, 10, 97, 1000),
    _integer("intmask", "({v} & {c}) | {y}", "(x & {c}) | y", "({v} & {c}) | y", 15, 255, 1023),
    _integer("intshift", "({v} << {c}) ^ {y}", "(x << {c}) ^ y", "({v} << {c}) ^ y", 1, 3, 5, 8),
    _integer("intdist", "abs({v} - {y}) / {c}", "(x - y).abs() // {c}", "|{v} - y| / {c}", 2, 3, 5),
    _integer("intgate", "{v} % {c} == 0 ? {v} : {y}", "torch.where(x % {c} == 0, x, y)",
             "({v} mod {c} = 0 ? {v} : y)", 2, 3, 4, 10),
)  # fmt: skip


def _gradient(name: str, c: str, torch: str, atoms: tuple[str, ...] | None = None) -> WorkloadOp:
    """The gradient of an activation: g times its derivative at x."""
    return _op(
        f"{name}backward",
        Formula(c, torch, f"g * {name}'({{v}})"),
        (Given("g", ()),),
        interval=within(-2.5, 2.5, -1.5, 1.5),
        dtypes=_FLOATS,
        atoms=atoms,
        steps_before=name not in ("relu", "leakyrelu"),  # whose sign is all that counts
    )


ACTIVATION_BACKWARD = (
    _gradient("relu", "{v} > 0.0f ? {g} : 0.0f", "torch.where(x > 0, g, torch.zeros_like(g))"),
    _gradient("leakyrelu", "{v} > 0.0f ? {g} : 0.1f * {g}", "torch.where(x > 0, g, 0.1 * g)"),
    _gradient("elu", "{v} > 0.0f ? {g} : {g} * expf({v})",
              "torch.where(x > 0, g, g * torch.exp(x))"),
    _gradient(
        "sigmoid",
        "{g} * expf(-{v}) / ((1.0f + expf(-{v})) * (1.0f + expf(-{v})))",
        "g * torch.sigmoid(x) * (1 - torch.sigmoid(x))",
    ),
    _gradient("tanh", "{g} * (1.0f - tanhf({v}) * tanhf({v}))", "g * (1 - torch.tanh(x) ** 2)"),
    _gradient(
        "softplus",
        "{g} / (1.0f + expf(-{v}))",
        "g * torch.sigmoid(x)",
        ("scale", "exp", "shift", "recip", "scale", "mul_full"),
    ),
    _gradient(
        "silu",
        "{g} / (1.0f + expf(-{v})) * (1.0f + {v} * (1.0f - 1.0f / (1.0f + expf(-{v}))))",
        "g * torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))",
    ),
    _gradient(
        "gelu",
        "{g} * (0.5f * (1.0f + erff({v} * 0.70710678f)) + "
        "{v} * expf(-0.5f * {v} * {v}) * 0.39894228f)",
        "g * (0.5 * (1 + torch.erf(x * 0.7071067811865476))"
        " + x * torch.exp(-0.5 * x * x) * 0.3989422804014327)",
    ),
    _gradient(
        "softsign",
        "{g} / ((1.0f + fabsf({v})) * (1.0f + fabsf({v})))",
        "g / (1 + x.abs()) ** 2",
    ),
    _gradient(
        "hardswish",
        "{v} <= -3.0f ? 0.0f : ({v} < 3.0f ? {g} * ({v} / 3.0f + 0.5f) : {g})",
        "torch.where(x <= -3, torch.zeros_like(g), torch.where(x < 3, g * (x / 3 + 0.5), g))",
    ),
)  # fmt: skip

_G = Given("g", ())
_MOMENT = Given("a", (), low=-1.0, high=1.0)
_SECOND = Given("b", (), low=0.05, high=2.0)
OPTIMIZER_STEP = (
    _op(
        "sgdstep",
        Formula("{v} - 0.01f * {c} * {g}", "x - 0.01 * {c} * g", "{v} - 0.01 * {c} * g"),
        (_G,),
        interval=same,
        letters="c",
        choices=((1,), (2,), (5,), (10,)),
    ),
    _op(
        "momentumstep",
        Formula(
            "{v} - 0.01f * {c} * (0.9f * {a} + {g})",
            "x - 0.01 * {c} * (0.9 * a + g)",
            "{v} - 0.01 * {c} * (0.9 * a + g)",
        ),
        (_G, _MOMENT),
        interval=same,
        letters="c",
        choices=((1,), (2,), (5,), (10,)),
    ),
    _op(
        "adamstep",
        Formula(
            "{v} - 0.01f * {c} * {a} / (sqrtf({b}) + 1e-6f)",
            "x - 0.01 * {c} * a / (torch.sqrt(b) + 1e-6)",
            "{v} - 0.01 * {c} * a / (sqrt(b) + 1e-6)",
        ),
        (_MOMENT, _SECOND),
        interval=same,
        letters="c",
        choices=((1,), (2,), (5,), (10,)),
    ),
    _op(
        "adamwstep",
        Formula(
            "{v} * (1.0f - 0.001f * {c}) - 0.01f * {a} / (sqrtf({b}) + 1e-6f)",
            "x * (1 - 0.001 * {c}) - 0.01 * a / (torch.sqrt(b) + 1e-6)",
            "{v} * (1 - 0.001 * {c}) - 0.01 * a / (sqrt(b) + 1e-6)",
        ),
        (_MOMENT, _SECOND),
        interval=same,
        letters="c",
        choices=((1,), (10,), (50,), (100,)),
    ),
)
