"""The table of elementwise operations: one row each, in PyTorch and mathematics.

To add one: its template, its range, where it is defined, where it changes anything, and its atoms
if it is made of others. The tests then check source and domain against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from coding_framework.data.synthesis.interval import LIMIT, Bounds, Constants, Op


def _monotone(f: Callable[..., float]) -> Callable[[Bounds, Constants, Bounds], Bounds]:
    """Range of a function that is monotone in the value for fixed constants."""

    def span(v: Bounds, constants: Constants, operand: Bounds) -> Bounds:
        low, high = f(v[0], *constants), f(v[1], *constants)
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

_function = partial(Op, "math")
_activation = partial(Op, "activation")
_scalar = partial(Op, "scalar")
_operand = partial(Op, "operand")

_MATH = (
    _function("relu", "torch.relu({v})", _monotone(lambda x: max(x, 0.0)), live=(0.0, 0.0),
              atoms=("clip",)),
    _function("abs", "torch.abs({v})", _sampled(abs), live=(0.0, 0.0), spoken="|{v}|"),
    _function("neg", "-{v}", _monotone(lambda x: -x), atoms=("scale",)),
    _function("square", "{v} * {v}", _sampled(lambda x: x * x), (-1e3, 1e3), spoken="{v}^2"),
    _function("cube", "{v} * {v} * {v}", _monotone(lambda x: x**3), (-50.0, 50.0),
              spoken="{v}^3"),
    _function("exp", "torch.exp({v})", _monotone(math.exp), (-12.0, 5.0)),
    _function("expm1", "torch.expm1({v})", _monotone(math.expm1), (-12.0, 5.0),
              atoms=("exp", "shift")),
    _function("log", "torch.log({v})", _monotone(math.log), (0.05, LIMIT)),
    _function("log1p", "torch.log1p({v})", _monotone(math.log1p), (-0.9, LIMIT),
              atoms=("shift", "log")),
    _function("sqrt", "torch.sqrt({v})", _monotone(math.sqrt), (0.0, LIMIT)),
    _function("rsqrt", "torch.rsqrt({v})", _monotone(lambda x: 1.0 / math.sqrt(x)),
              (0.05, LIMIT), atoms=("sqrt", "recip", "scale"), spoken="1/sqrt({v})"),
    _function("recip", "1.0 / {v}", _monotone(lambda x: 1.0 / x), (0.05, LIMIT),
              atoms=("recip", "scale"), spoken="1/({v})"),
    _function("sigmoid", "torch.sigmoid({v})", _monotone(_sigmoid), _SATURATING, live=_CUT,
              atoms=("scale", "exp", "shift", "recip", "scale")),
    _function("tanh", "torch.tanh({v})", _monotone(math.tanh), _SATURATING, live=(-2.0, 2.0),
              atoms=("scale", "exp", "shift", "recip", "scale", "shift")),
)  # fmt: skip
_ACTIVATIONS = (
    _activation("silu", "F.silu({v})", _sampled(lambda x: x * _sigmoid(x)), _SATURATING,
                live=_CUT),
    _activation("gelu", "F.gelu({v})", _sampled(_gelu), _SATURATING, live=_CUT),
    _activation("gelutanh", "F.gelu({v}, approximate='tanh')", _sampled(_gelu_tanh), _SATURATING,
                live=_CUT, atoms=("gelu",), spoken="gelu_tanh({v})"),
    _activation("leakyrelu", "F.leaky_relu({v}, {a})",
                _monotone(lambda x, a: x if x > 0 else a * x), live=(0.0, 0.0),
                constants=((0.1,), (0.01,), (0.2,))),
    _activation("elu", "F.elu({v})", _monotone(_elu), _SATURATING, live=(0.0, 0.0)),
    _activation("selu", "F.selu({v})",
                _monotone(lambda x: 1.0507 * (x if x > 0 else 1.67326 * math.expm1(x))),
                _SATURATING, live=(0.0, 0.0), atoms=("elu", "scale")),
    _activation("softplus", "F.softplus({v})", _monotone(_softplus), (-12.0, 12.0), live=_CUT,
                atoms=("exp", "shift", "log")),
    _activation("logsigmoid", "F.logsigmoid({v})", _monotone(lambda x: -_softplus(-x)),
                (-12.0, 12.0), live=_CUT, atoms=("scale", "exp", "shift", "log", "scale")),
    _activation("relu6", "F.relu6({v})", _monotone(lambda x: min(max(x, 0.0), 6.0)),
                live=(0.0, 0.0), atoms=("clip",)),
    _activation("hardtanh", "F.hardtanh({v})", _monotone(lambda x: min(max(x, -1.0), 1.0)),
                live=(-1.0, 1.0), atoms=("clip",)),
    _activation("hardsigmoid", "F.hardsigmoid({v})",
                _monotone(lambda x: min(max(x + 3.0, 0.0), 6.0) / 6.0), live=(-3.0, 0.0),
                atoms=("shift", "clip", "scale")),
    _activation("hardswish", "F.hardswish({v})",
                _sampled(lambda x: x * min(max(x + 3.0, 0.0), 6.0) / 6.0), live=(-3.0, 0.0)),
    _activation("mish", "F.mish({v})", _sampled(lambda x: x * math.tanh(_softplus(x))),
                (-12.0, 12.0), live=_CUT),
    _activation("softsign", "F.softsign({v})", _monotone(lambda x: x / (1.0 + abs(x))),
                (-100.0, 100.0)),
    _activation("softshrink", "F.softshrink({v}, {a})", _monotone(_shrink), live=(-0.5, 0.5),
                constants=((0.5,), (0.25,))),
)  # fmt: skip
_SCALARS = (
    _scalar("add", "{v} + {a}", _monotone(lambda x, a: x + a), atoms=("shift",),
            constants=((1.0,), (0.5,), (2.0,), (3.0,), (0.25,), (1.5,))),
    _scalar("sub", "{v} - {a}", _monotone(lambda x, a: x - a), atoms=("shift",),
            constants=((1.0,), (0.5,), (2.0,), (1.5,))),
    _scalar("mul", "{v} * {a}", _monotone(lambda x, a: x * a), atoms=("scale",),
            constants=((2.0,), (0.5,), (3.0,), (0.1,), (1.5,), (-2.0,))),
    _scalar("div", "{v} / {a}", _monotone(lambda x, a: x / a), atoms=("scale",),
            constants=((3.0,), (5.0,), (7.0,), (1.7,))),
    _scalar("rsub", "{a} - {v}", _monotone(lambda x, a: a - x), atoms=("scale", "shift"),
            constants=((1.0,), (2.0,), (0.5,), (3.0,))),
    _scalar("rdiv", "{a} / {v}", _monotone(lambda x, a: a / x), (0.05, LIMIT),
            atoms=("recip", "scale"), constants=((2.0,), (0.5,), (3.0,)), spoken="{a} / ({v})"),
    _scalar("clampmin", "torch.clamp({v}, min={a})", _monotone(max), atoms=("clip",),
            constants=((-1.0,), (0.5,), (0.1,), (-0.5,)), spoken="max({v}, {a})"),
    _scalar("clampmax", "torch.clamp({v}, max={a})", _monotone(min), atoms=("clip",),
            constants=((1.0,), (0.5,), (1.5,), (2.0,)), spoken="min({v}, {a})"),
    _scalar("clamp", "torch.clamp({v}, {a}, {b})", _monotone(lambda x, a, b: min(max(x, a), b)),
            atoms=("clip",),
            constants=((-1.0, 1.0), (0.0, 1.0), (-0.5, 0.5), (-2.0, 1.5), (0.5, 1.5))),
)  # fmt: skip
_OPERANDS = (
    _operand("add", "{v} + {o}", _with_operand(lambda x, y: x + y)),
    _operand("sub", "{v} - {o}", _with_operand(lambda x, y: x - y), atoms=("add",)),
    _operand("mul", "{v} * {o}", _with_operand(lambda x, y: x * y)),
    _operand("div", "{v} / {o}", _with_operand(lambda x, y: x / y), operand_range=(0.5, 2.0)),
    _operand("max", "torch.maximum({v}, {o})", _with_operand(max), spoken="max({v}, {o})"),
    _operand("min", "torch.minimum({v}, {o})", _with_operand(min), atoms=("max",),
             spoken="min({v}, {o})"),
)  # fmt: skip

UNARY_OPS: dict[str, Op] = {op.name: op for op in (*_MATH, *_ACTIVATIONS)}
SCALAR_OPS: dict[str, Op] = {op.name: op for op in _SCALARS}
OPERAND_OPS: dict[str, Op] = {op.name: op for op in _OPERANDS}
