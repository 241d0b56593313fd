"""The elementwise operations of module tasks: their PyTorch spellings.

In the templates {x} is the tensor, {p} what is read beside it, and an argument's name its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coding_framework.data.modules.records import Operation, Value
from coding_framework.data.modules.spelling import Writing

Reads = Literal["", "parameter", "one", "input", "head"]
Arguments = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Pointwise:
    """One elementwise operation."""

    name: str
    words: str
    functions: tuple[str, ...]
    """Expressions in `forward`; "F." stands for torch.nn.functional."""
    module: str = ""
    """The layer of torch.nn; "" where there is none."""
    reads: Reads = ""
    """A parameter per channel or of one element, another input of x's shape, or what the first
    layer gave."""
    choices: tuple[Arguments, ...] = ((),)
    """Arguments to draw from in level 2."""
    alone: tuple[Arguments, ...] = ()
    """Further arguments that it is a task with by itself, in level 1."""
    jumps: bool = False
    """Not continuous: never after arithmetic that rounds."""
    defaults: Arguments = ()
    """What PyTorch takes where nothing is said."""


def _each(name: str, *values: Value) -> tuple[Arguments, ...]:
    return tuple(((name, value),) for value in values)


def _pairs(first: str, second: str, *values: tuple[Value, Value]) -> tuple[Arguments, ...]:
    return tuple(((first, a), (second, b)) for a, b in values)


_TABLE = (
    Pointwise(
        "relu",
        "ReLU",
        ("torch.relu({x})", "F.relu({x})", "{x}.relu()", "torch.clamp({x}, min=0.0)"),
        "nn.ReLU()",
    ),
    Pointwise("sigmoid", "Sigmoid", ("torch.sigmoid({x})", "{x}.sigmoid()"), "nn.Sigmoid()"),
    Pointwise("tanh", "Tanh", ("torch.tanh({x})", "{x}.tanh()"), "nn.Tanh()"),
    Pointwise("gelu", "GELU", ("F.gelu({x})",), "nn.GELU()"),
    Pointwise(
        "gelu_tanh",
        "GELU (tanh approximation)",
        ('F.gelu({x}, approximate="tanh")',),
        'nn.GELU(approximate="tanh")',
    ),
    Pointwise(
        "silu",
        "Swish",
        ("F.silu({x})", "{x} * torch.sigmoid({x})", "torch.sigmoid({x}) * {x}"),
        "nn.SiLU()",
    ),
    Pointwise("mish", "Mish", ("F.mish({x})", "{x} * torch.tanh(F.softplus({x}))"), "nn.Mish()"),
    Pointwise(
        "softplus",
        "Softplus",
        ("F.softplus({x}, beta={beta}, threshold={threshold})",),
        "nn.Softplus(beta={beta}, threshold={threshold})",
        choices=_pairs("beta", "threshold", (1.0, 20.0), (2.0, 20.0)),
        alone=_pairs("beta", "threshold", (0.5, 20.0), (1.5, 10.0), (3.0, 15.0), (0.25, 20.0)),
        defaults=(("beta", 1.0), ("threshold", 20.0)),
    ),
    Pointwise(
        "hardswish",
        "HardSwish",
        ("F.hardswish({x})", "{x} * F.relu6({x} + 3.0) / 6.0"),
        "nn.Hardswish()",
    ),
    Pointwise("hardsigmoid", "HardSigmoid", ("F.hardsigmoid({x})",), "nn.Hardsigmoid()"),
    Pointwise(
        "softsign",
        "Softsign",
        ("F.softsign({x})", "{x} / (1 + torch.abs({x}))"),
        "nn.Softsign()",
    ),
    Pointwise(
        "elu",
        "ELU",
        ("F.elu({x}, alpha={alpha})",),
        "nn.ELU(alpha={alpha})",
        choices=_each("alpha", 1.0, 0.5),
        alone=_each("alpha", 0.1, 0.3, 1.67, 2.0, 3.0),
        defaults=(("alpha", 1.0),),
    ),
    Pointwise(
        "celu",
        "CELU",
        ("F.celu({x}, alpha={alpha})",),
        "nn.CELU(alpha={alpha})",
        choices=_each("alpha", 1.0, 2.0),
        alone=_each("alpha", 0.5, 0.75, 1.5, 3.0),
        defaults=(("alpha", 1.0),),
    ),
    Pointwise("selu", "SELU", ("F.selu({x})", "torch.selu({x})"), "nn.SELU()"),
    Pointwise(
        "leaky_relu",
        "LeakyReLU",
        (
            "F.leaky_relu({x}, negative_slope={negative_slope})",
            "torch.where({x} > 0, {x}, {x} * {negative_slope})",
        ),
        "nn.LeakyReLU({negative_slope})",
        choices=_each("negative_slope", 0.01, 0.1, 0.2),
        alone=_each("negative_slope", 0.02, 0.05, 0.3, 0.25, 0.5),
        defaults=(("negative_slope", 0.01),),
    ),
    Pointwise(
        "hardtanh",
        "HardTanh",
        ("F.hardtanh({x}, min_val={min_val}, max_val={max_val})",),
        "nn.Hardtanh(min_val={min_val}, max_val={max_val})",
        choices=_pairs("min_val", "max_val", (-1.0, 1.0), (-2.0, 2.0), (-0.5, 1.5)),
        alone=_pairs("min_val", "max_val", (-3.0, 1.0), (0.0, 4.0), (-0.25, 0.75)),
        defaults=(("min_val", -1.0), ("max_val", 1.0)),
    ),
    Pointwise(
        "clamp",
        "Clamp",
        (
            "torch.clamp({x}, {min_value}, {max_value})",
            "torch.clamp({x}, min={min_value}, max={max_value})",
            "{x}.clamp({min_value}, {max_value})",
        ),
        choices=_pairs("min_value", "max_value", (-1.0, 1.0), (0.0, 3.0), (-0.5, 2.0), (-3.0, 0.5)),
        alone=_pairs("min_value", "max_value", (-2.0, 0.25), (0.1, 0.9), (-4.0, 4.0)),
    ),
    Pointwise(
        "clamp_min",
        "ClampMin",
        ("torch.clamp({x}, min={min_value})", "torch.clamp_min({x}, {min_value})"),
        choices=_each("min_value", -0.5, 0.25, -1.0),
        alone=_each("min_value", 0.75, -2.0),
    ),
    Pointwise("relu6", "ReLU6", ("F.relu6({x})",), "nn.ReLU6()"),
    Pointwise("abs", "Abs", ("torch.abs({x})", "{x}.abs()")),
    Pointwise("square", "Square", ("{x} * {x}", "torch.square({x})", "{x} ** 2")),
    Pointwise("sin", "Sine", ("torch.sin({x})",)),
    Pointwise("logsigmoid", "LogSigmoid", ("F.logsigmoid({x})",), "nn.LogSigmoid()"),
    Pointwise(
        "tanhshrink",
        "Tanhshrink",
        ("F.tanhshrink({x})", "{x} - torch.tanh({x})"),
        "nn.Tanhshrink()",
    ),
    Pointwise(
        "softshrink",
        "Softshrink",
        ("F.softshrink({x}, lambd={lambd})",),
        "nn.Softshrink(lambd={lambd})",
        choices=_each("lambd", 0.5, 0.25),
        alone=_each("lambd", 0.1, 0.75, 1.0, 1.5),
        defaults=(("lambd", 0.5),),
    ),
    Pointwise(
        "hardshrink",
        "Hardshrink",
        ("F.hardshrink({x}, lambd={lambd})",),
        "nn.Hardshrink(lambd={lambd})",
        choices=_each("lambd", 0.5),
        alone=_each("lambd", 0.1, 0.25, 0.75, 1.0),
        jumps=True,
        defaults=(("lambd", 0.5),),
    ),
    Pointwise(
        "threshold",
        "Threshold",
        ("F.threshold({x}, {threshold}, {value})", "torch.where({x} > {threshold}, {x}, {value})"),
        "nn.Threshold({threshold}, {value})",
        choices=_pairs("threshold", "value", (0.1, 0.0)),
        jumps=True,
        alone=_pairs("threshold", "value", (0.5, -1.0), (-0.5, 2.0), (1.0, 0.5), (0.25, 20.0)),
    ),
    Pointwise(
        "add_scalar",
        "AddScalar",
        ("{x} + {add_value}", "torch.add({x}, {add_value})"),
        choices=_each("add_value", 0.5, 1.0, 2.0, 0.1),
    ),
    Pointwise(
        "subtract_scalar",
        "SubtractScalar",
        ("{x} - {subtract_value}", "torch.sub({x}, {subtract_value})"),
        choices=_each("subtract_value", 0.5, 1.0, 2.0),
    ),
    Pointwise(
        "scale",
        "Scaling",
        ("{x} * {scale_factor}", "torch.mul({x}, {scale_factor})"),
        choices=_each("scale_factor", 2.0, 0.5, 1.5, 0.1),
    ),
    Pointwise(
        "divide",
        "Divide",
        ("{x} / {divisor}", "torch.div({x}, {divisor})"),
        choices=_each("divisor", 2.0, 10.0, 1.5),
    ),
    Pointwise("add_bias", "BiasAdd", ("{x} + {p}", "torch.add({x}, {p})"), reads="parameter"),
    Pointwise("subtract_bias", "BiasSubtract", ("{x} - {p}",), reads="parameter"),
    Pointwise("multiply_weight", "ChannelScale", ("{x} * {p}", "{p} * {x}"), reads="parameter"),
    Pointwise("add_one", "ScalarAdd", ("{x} + {p}",), reads="one"),
    Pointwise("subtract_one", "ScalarSubtract", ("{x} - {p}",), reads="one"),
    Pointwise("multiply_one", "ScalarScale", ("{x} * {p}", "{p} * {x}"), reads="one"),
    Pointwise(
        "least_of_one",
        "Min",
        ("torch.minimum({x}, {p})", "torch.min({x}, {p})"),
        reads="one",
    ),
    Pointwise(
        "most_of_one",
        "Max",
        ("torch.maximum({x}, {p})", "torch.max({x}, {p})"),
        reads="one",
    ),
    Pointwise("add_input", "ResidualInput", ("{x} + {p}", "torch.add({x}, {p})"), reads="input"),
    Pointwise("multiply_input", "Gate", ("{x} * {p}", "torch.mul({x}, {p})"), reads="input"),
    Pointwise("add_head", "ResidualAdd", ("{x} + {p}",), reads="head"),
    Pointwise("multiply_head", "ResidualMultiply", ("{x} * {p}",), reads="head"),
)

POINTWISE: dict[str, Pointwise] = {row.name: row for row in _TABLE}

_PARAMETER_NAMES = {
    "add_bias": "bias", "subtract_bias": "subtract", "multiply_weight": "weight",
    "add_one": "bias", "subtract_one": "offset", "multiply_one": "multiplier",
    "least_of_one": "most", "most_of_one": "least",
}  # fmt: skip


def write_pointwise(w: Writing, operation: Operation) -> None:
    """The statement of an elementwise operation, and what it needs in `__init__`."""
    row = POINTWISE[operation.name]
    if row.reads:
        w.step(_spelling(w, row).replace("{p}", _read(w, operation, row)))
    elif row.defaults and operation.arguments == row.defaults and w.leaves_defaults_out:
        if row.module and w.spelling.form == "module":
            w.layer(operation.name, f"{row.module.partition('(')[0]}()")
        else:
            function = row.functions[0].partition("(")[0].removeprefix("F.")
            w.step(f"{w.function(function)}({{x}})")
    elif row.module and w.spelling.form == "module":
        named = {name: w.argument(name, value) for name, value in operation.arguments}
        w.layer(operation.name, row.module.format(**named))
    else:
        named = {name: w.constant(name, value) for name, value in operation.arguments}
        w.step(_spelling(w, row).format(x="{x}", **named))


def _spelling(w: Writing, row: Pointwise) -> str:
    text = w.pick(*row.functions)
    return text.replace("F.", w.function("")) if "F." in text else text


def _read(w: Writing, operation: Operation, row: Pointwise) -> str:
    if row.reads == "input":
        return w.shortcut or w.draft.inputs[-1].name
    if row.reads == "head":
        return "residual"
    if row.reads == "one":
        return w.parameter(_PARAMETER_NAMES[operation.name], ("1",))
    inner = w.rank - 2 if w.draft.layout == "channels_first" else 0
    dims = (w.channels, *("1",) * inner)
    return w.parameter(_PARAMETER_NAMES[operation.name], dims)
