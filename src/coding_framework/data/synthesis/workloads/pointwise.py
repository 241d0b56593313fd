"""Elementwise workloads: several inputs of one shape, low precision, integers, gradients."""

from __future__ import annotations

from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import (
    FLOATS,
    Given,
    Sizes,
    WorkloadOp,
    same,
    within,
)

_op = partial(
    WorkloadOp,
    sizes=Sizes("nm", ((128, 512), (61, 259), (3, 5)), ((4096, 8192), (4093, 8191), (3, 5))),
)
_Y, _Z, _G = Given("y"), Given("z"), Given("g")


def _within_two(v: Interval) -> Interval:
    return Interval.of(min(v.low, -2.0), max(v.high, 2.0))


def _four_more(v: Interval) -> Interval:
    return Interval.of(v.low - 4.0, v.high + 4.0)


LOW_PRECISION = (
    _op("elementwise", "x", "{v}", interval=same, dtypes=("float16", "bfloat16"), atoms=()),
)
SELECT = tuple(
    _op(f"select{word}", f"torch.where(x {sign} y, x, z)", f"({{v}} {sign} y ? {{v}} : z)",
        others=(_Y, _Z), interval=_within_two)
    for word, sign in (("gt", ">"), ("lt", "<"))
)  # fmt: skip
MULTIPLY_ADD = (
    _op("addcmul", "torch.addcmul(x, y, z)", "({v} + y * z)", others=(_Y, _Z),
        interval=_four_more, dtypes=FLOATS),
    _op("addcdiv", "torch.addcdiv(x, y, z)", "({v} + y / z)",
        others=(_Y, Given("z", low=0.5)), interval=_four_more),
    _op("lerp", "torch.lerp(x, y, z)", "lerp({v}, y, z)",
        others=(_Y, Given("z", low=0.0, high=1.0)), interval=_within_two),
)  # fmt: skip


def _integer(name: str, torch: str, spoken: str, *constants: int) -> WorkloadOp:
    return _op(
        name, torch, spoken, others=(Given("y", "", "int32", 0.0, 10_000.0),), x_dtype="int32",
        x_range=(0.0, 10_000.0), output="int32", letters="c",
        choices=tuple((c,) for c in constants), steps_before=False,
    )  # fmt: skip


INTEGER = (
    _integer("intmad", "x * {c} + y", "{v} * {c} + y", 2, 3, 5, 7, 11, 100),
    _integer("intmod", "(x + y) % {c}", "({v} + y) mod {c}", 7, 10, 97, 1000),
    _integer("intmask", "(x & {c}) | y", "({v} & {c}) | y", 15, 255, 1023),
    _integer("intshift", "(x << {c}) ^ y", "({v} << {c}) ^ y", 1, 3, 5, 8),
    _integer("intdist", "(x - y).abs() // {c}", "|{v} - y| / {c}", 2, 3, 5),
    _integer("intgate", "torch.where(x % {c} == 0, x, y)",
             "({v} mod {c} = 0 ? {v} : y)", 2, 3, 4, 10),
)  # fmt: skip


def _gradient(name: str, torch: str, atoms: tuple[str, ...] | None = None) -> WorkloadOp:
    """The gradient of an activation: g times its derivative at x."""
    return _op(
        f"{name}backward", torch, f"g * {name}'({{v}})", others=(_G,), dtypes=FLOATS, atoms=atoms,
        interval=within(-2.5, 2.5, -1.5, 1.5),
        steps_before=name not in ("relu", "leakyrelu"),  # whose sign is all that counts
    )  # fmt: skip


ACTIVATION_BACKWARD = (
    _gradient("relu", "torch.where(x > 0, g, torch.zeros_like(g))"),
    _gradient("leakyrelu", "torch.where(x > 0, g, 0.1 * g)"),
    _gradient("elu", "torch.where(x > 0, g, g * torch.exp(x))"),
    _gradient("sigmoid", "g * torch.sigmoid(x) * (1 - torch.sigmoid(x))"),
    _gradient("tanh", "g * (1 - torch.tanh(x) ** 2)"),
    _gradient("softplus", "g * torch.sigmoid(x)",
              ("scale", "exp", "shift", "recip", "scale", "mul_full")),
    _gradient("silu", "g * torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))"),
    _gradient("gelu", "g * (0.5 * (1 + torch.erf(x * 0.7071067811865476))"
              " + x * torch.exp(-0.5 * x * x) * 0.3989422804014327)"),
    _gradient("softsign", "g / (1 + x.abs()) ** 2"),
    _gradient("hardswish", "torch.where(x <= -3, torch.zeros_like(g), "
              "torch.where(x < 3, g * (x / 3 + 0.5), g))"),
)  # fmt: skip

_step = partial(_op, interval=same, letters="c", choices=((1,), (2,), (5,), (10,)))
_MOMENT = Given("a", low=-1.0, high=1.0)
_SECOND = Given("b", low=0.05)
OPTIMIZER_STEP = (
    _step("sgdstep", "x - 0.01 * {c} * g", "{v} - 0.01 * {c} * g", others=(_G,)),
    _step("momentumstep", "x - 0.01 * {c} * (0.9 * a + g)", "{v} - 0.01 * {c} * (0.9 * a + g)",
          others=(_G, _MOMENT)),
    _step("adamstep", "x - 0.01 * {c} * a / (torch.sqrt(b) + 1e-6)",
          "{v} - 0.01 * {c} * a / (sqrt(b) + 1e-6)", others=(_MOMENT, _SECOND)),
    _step("adamwstep", "x * (1 - 0.001 * {c}) - 0.01 * a / (torch.sqrt(b) + 1e-6)",
          "{v} * (1 - 0.001 * {c}) - 0.01 * a / (sqrt(b) + 1e-6)", others=(_MOMENT, _SECOND),
          choices=((1,), (10,), (50,), (100,))),
)  # fmt: skip
