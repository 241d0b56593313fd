"""The table of elementwise operations: one row each, in PyTorch and mathematics.

To add one: its template, its range, where it is defined, where it changes anything, and its atoms
if it is made of others. The tests then check source and domain against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from coding_framework.data.synthesis.interval import LIMIT, Bounds, Constants, Op


def _monotone(f: Callable[[float], float]) -> Callable[[Bounds, Constants, Bounds], Bounds]:
    def span(v: Bounds, constants: Constants, operand: Bounds) -> Bounds:
        low, high = f(v[0]), f(v[1])
        return min(low, high), max(low, high)

    return span


def _sampled(f: Callable[[float], float]) -> Callable[[Bounds, Constants, Bounds], Bounds]:
    """Range of a function that is not monotone, from 257 samples: bounds are not exact, and none
    of these functions has an edge between two samples that a domain depends on."""

    def span(v: Bounds, constants: Constants, operand: Bounds) -> Bounds:
        if v[0] == v[1]:
            return f(v[0]), f(v[0])
        values = [f(v[0] + (v[1] - v[0]) * i / 256) for i in range(257)]
        if v[0] < 0 < v[1]:
            values.append(f(0.0))
        return min(values), max(values)

    return span


def _with_constants(
    f: Callable[..., float],
) -> Callable[[Bounds, Constants, Bounds], Bounds]:
    """Monotone in the value for fixed constants."""

    def span(v: Bounds, constants: Constants, operand: Bounds) -> Bounds:
        low, high = f(v[0], *constants), f(v[1], *constants)
        return min(low, high), max(low, high)

    return span


def _with_operand(
    f: Callable[[float, float], float],
) -> Callable[[Bounds, Constants, Bounds], Bounds]:
    def span(v: Bounds, constants: Constants, operand: Bounds) -> Bounds:
        corners = [f(x, y) for x in v for y in operand]
        return min(corners), max(corners)

    return span


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def _gelu(x: float) -> float:
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _elu(x: float) -> float:
    return x if x > 0 else math.expm1(x)


def _shrink(x: float, a: float) -> float:
    return math.copysign(max(abs(x) - a, 0.0), x)


_SATURATING = (-20.0, 20.0)
_CUT = (-3.0, 3.0)

_MATH = (
    Op(
        "relu",
        "math",
        "torch.relu({v})",
        "relu({v})",
        _monotone(lambda x: max(x, 0.0)),
        live=(0.0, 0.0),
        atoms=("clip",),
    ),
    Op("abs", "math", "torch.abs({v})", "|{v}|", _sampled(abs), live=(0.0, 0.0)),
    Op("neg", "math", "-{v}", "-{v}", _monotone(lambda x: -x), atoms=("scale",)),
    Op(
        "square",
        "math",
        "{v} * {v}",
        "{v}^2",
        _sampled(lambda x: x * x),
        domain=(-1e3, 1e3),
    ),
    Op(
        "cube",
        "math",
        "{v} * {v} * {v}",
        "{v}^3",
        _monotone(lambda x: x**3),
        domain=(-50.0, 50.0),
    ),
    Op(
        "exp",
        "math",
        "torch.exp({v})",
        "exp({v})",
        _monotone(math.exp),
        domain=(-12.0, 5.0),
    ),
    Op(
        "expm1",
        "math",
        "torch.expm1({v})",
        "expm1({v})",
        _monotone(math.expm1),
        domain=(-12.0, 5.0),
        atoms=("exp", "shift"),
    ),
    Op(
        "log",
        "math",
        "torch.log({v})",
        "log({v})",
        _monotone(math.log),
        domain=(0.05, LIMIT),
    ),
    Op(
        "log1p",
        "math",
        "torch.log1p({v})",
        "log1p({v})",
        _monotone(math.log1p),
        domain=(-0.9, LIMIT),
        atoms=("shift", "log"),
    ),
    Op(
        "sqrt",
        "math",
        "torch.sqrt({v})",
        "sqrt({v})",
        _monotone(math.sqrt),
        domain=(0.0, LIMIT),
    ),
    Op(
        "rsqrt",
        "math",
        "torch.rsqrt({v})",
        "1/sqrt({v})",
        _monotone(lambda x: 1.0 / math.sqrt(x)),
        domain=(0.05, LIMIT),
        atoms=("sqrt", "recip", "scale"),
    ),
    Op(
        "recip",
        "math",
        "1.0 / {v}",
        "1/({v})",
        _monotone(lambda x: 1.0 / x),
        domain=(0.05, LIMIT),
        atoms=("recip", "scale"),
    ),
    Op(
        "sigmoid",
        "math",
        "torch.sigmoid({v})",
        "sigmoid({v})",
        _monotone(_sigmoid),
        domain=_SATURATING,
        live=_CUT,
        atoms=("scale", "exp", "shift", "recip", "scale"),
    ),
    Op(
        "tanh",
        "math",
        "torch.tanh({v})",
        "tanh({v})",
        _monotone(math.tanh),
        domain=_SATURATING,
        live=(-2.0, 2.0),
        atoms=("scale", "exp", "shift", "recip", "scale", "shift"),
    ),
)

_ACTIVATIONS = (
    Op(
        "silu",
        "activation",
        "F.silu({v})",
        "silu({v})",
        _sampled(lambda x: x * _sigmoid(x)),
        domain=_SATURATING,
        live=_CUT,
    ),
    Op(
        "gelu",
        "activation",
        "F.gelu({v})",
        "gelu({v})",
        _sampled(_gelu),
        domain=_SATURATING,
        live=_CUT,
    ),
    Op(
        "gelutanh",
        "activation",
        "F.gelu({v}, approximate='tanh')",
        "gelu_tanh({v})",
        _sampled(_gelu_tanh),
        domain=_SATURATING,
        live=_CUT,
        atoms=("gelu",),
    ),
    Op(
        "leakyrelu",
        "activation",
        "F.leaky_relu({v}, {a})",
        "leaky_relu({v}, {a})",
        _with_constants(lambda x, a: x if x > 0 else a * x),
        live=(0.0, 0.0),
        constants=((0.1,), (0.01,), (0.2,)),
    ),
    Op(
        "elu",
        "activation",
        "F.elu({v})",
        "elu({v})",
        _monotone(_elu),
        domain=_SATURATING,
        live=(0.0, 0.0),
    ),
    Op(
        "selu",
        "activation",
        "F.selu({v})",
        "selu({v})",
        _monotone(lambda x: 1.0507 * (x if x > 0 else 1.67326 * math.expm1(x))),
        domain=_SATURATING,
        live=(0.0, 0.0),
        atoms=("elu", "scale"),
    ),
    Op(
        "softplus",
        "activation",
        "F.softplus({v})",
        "softplus({v})",
        _monotone(_softplus),
        domain=(-12.0, 12.0),
        live=_CUT,
        atoms=("exp", "shift", "log"),
    ),
    Op(
        "logsigmoid",
        "activation",
        "F.logsigmoid({v})",
        "logsigmoid({v})",
        _monotone(lambda x: -_softplus(-x)),
        domain=(-12.0, 12.0),
        live=_CUT,
        atoms=("scale", "exp", "shift", "log", "scale"),
    ),
    Op(
        "relu6",
        "activation",
        "F.relu6({v})",
        "relu6({v})",
        _monotone(lambda x: min(max(x, 0.0), 6.0)),
        live=(0.0, 0.0),
        atoms=("clip",),
    ),
    Op(
        "hardtanh",
        "activation",
        "F.hardtanh({v})",
        "hardtanh({v})",
        _monotone(lambda x: min(max(x, -1.0), 1.0)),
        live=(-1.0, 1.0),
        atoms=("clip",),
    ),
    Op(
        "hardsigmoid",
        "activation",
        "F.hardsigmoid({v})",
        "hardsigmoid({v})",
        _monotone(lambda x: min(max(x + 3.0, 0.0), 6.0) / 6.0),
        live=(-3.0, 0.0),
        atoms=("shift", "clip", "scale"),
    ),
    Op(
        "hardswish",
        "activation",
        "F.hardswish({v})",
        "hardswish({v})",
        _sampled(lambda x: x * min(max(x + 3.0, 0.0), 6.0) / 6.0),
        live=(-3.0, 0.0),
    ),
    Op(
        "mish",
        "activation",
        "F.mish({v})",
        "mish({v})",
        _sampled(lambda x: x * math.tanh(_softplus(x))),
        domain=(-12.0, 12.0),
        live=_CUT,
    ),
    Op(
        "softsign",
        "activation",
        "F.softsign({v})",
        "softsign({v})",
        _monotone(lambda x: x / (1.0 + abs(x))),
        domain=(-100.0, 100.0),
    ),
    Op(
        "softshrink",
        "activation",
        "F.softshrink({v}, {a})",
        "softshrink({v}, {a})",
        _with_constants(_shrink),
        live=(-0.5, 0.5),
        constants=((0.5,), (0.25,)),
    ),
)

_SCALARS = (
    Op(
        "add",
        "scalar",
        "{v} + {a}",
        "{v} + {a}",
        _with_constants(lambda x, a: x + a),
        atoms=("shift",),
        constants=((1.0,), (0.5,), (2.0,), (3.0,), (0.25,), (1.5,)),
    ),
    Op(
        "sub",
        "scalar",
        "{v} - {a}",
        "{v} - {a}",
        _with_constants(lambda x, a: x - a),
        atoms=("shift",),
        constants=((1.0,), (0.5,), (2.0,), (1.5,)),
    ),
    Op(
        "mul",
        "scalar",
        "{v} * {a}",
        "{v} * {a}",
        _with_constants(lambda x, a: x * a),
        atoms=("scale",),
        constants=((2.0,), (0.5,), (3.0,), (0.1,), (1.5,), (-2.0,)),
    ),
    Op(
        "div",
        "scalar",
        "{v} / {a}",
        "{v} / {a}",
        _with_constants(lambda x, a: x / a),
        atoms=("scale",),
        constants=((3.0,), (5.0,), (7.0,), (1.7,)),
    ),
    Op(
        "rsub",
        "scalar",
        "{a} - {v}",
        "{a} - {v}",
        _with_constants(lambda x, a: a - x),
        atoms=("scale", "shift"),
        constants=((1.0,), (2.0,), (0.5,), (3.0,)),
    ),
    Op(
        "rdiv",
        "scalar",
        "{a} / {v}",
        "{a} / ({v})",
        _with_constants(lambda x, a: a / x),
        domain=(0.05, LIMIT),
        atoms=("recip", "scale"),
        constants=((2.0,), (0.5,), (3.0,)),
    ),
    Op(
        "clampmin",
        "scalar",
        "torch.clamp({v}, min={a})",
        "max({v}, {a})",
        _with_constants(max),
        atoms=("clip",),
        constants=((-1.0,), (0.5,), (0.1,), (-0.5,)),
    ),
    Op(
        "clampmax",
        "scalar",
        "torch.clamp({v}, max={a})",
        "min({v}, {a})",
        _with_constants(min),
        atoms=("clip",),
        constants=((1.0,), (0.5,), (1.5,), (2.0,)),
    ),
    Op(
        "clamp",
        "scalar",
        "torch.clamp({v}, {a}, {b})",
        "clamp({v}, {a}, {b})",
        _with_constants(lambda x, a, b: min(max(x, a), b)),
        atoms=("clip",),
        constants=((-1.0, 1.0), (0.0, 1.0), (-0.5, 0.5), (-2.0, 1.5), (0.5, 1.5)),
    ),
)

_OPERANDS = (
    Op("add", "operand", "{v} + {o}", "{v} + {o}", _with_operand(lambda x, y: x + y)),
    Op(
        "sub",
        "operand",
        "{v} - {o}",
        "{v} - {o}",
        _with_operand(lambda x, y: x - y),
        atoms=("add",),
    ),
    Op("mul", "operand", "{v} * {o}", "{v} * {o}", _with_operand(lambda x, y: x * y)),
    Op(
        "div",
        "operand",
        "{v} / {o}",
        "{v} / {o}",
        _with_operand(lambda x, y: x / y),
        operand_range=(0.5, 2.0),
    ),
    Op(
        "max",
        "operand",
        "torch.maximum({v}, {o})",
        "max({v}, {o})",
        _with_operand(max),
    ),
    Op(
        "min",
        "operand",
        "torch.minimum({v}, {o})",
        "min({v}, {o})",
        _with_operand(min),
        atoms=("max",),
    ),
)

UNARY_OPS: dict[str, Op] = {op.name: op for op in (*_MATH, *_ACTIVATIONS)}
SCALAR_OPS: dict[str, Op] = {op.name: op for op in _SCALARS}
OPERAND_OPS: dict[str, Op] = {op.name: op for op in _OPERANDS}
