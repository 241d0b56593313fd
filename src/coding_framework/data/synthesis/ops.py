"""The algebra of elementwise steps: what each computes in PyTorch and in CUDA C, and where it may.

A step maps the running value `v` to the next one, alone (`relu`), with constants (`mul2`) or with
another input (`add`: the matrix y; `addrow`: a row vector; ...). Guaranteed by the intervals: in an
accepted program every step stays inside its domain for all declared inputs, and every step changes
the result on a good part of them (no relu of a square, no clamp that never cuts).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["math", "activation", "scalar", "operand"]
Operand = Literal["full", "row", "col", "scalar"]

LIMIT = 1e6
"""Largest magnitude that a value may reach: far from float32's overflow, also when squared."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a value lies: always in [low, high], typically in [typical_low, typical_high].

    They differ after a reduction: the mean of 500 values in [-4, 4] can be 4, and never is.
    """

    low: float
    high: float
    typical_low: float
    typical_high: float

    @classmethod
    def of(cls, low: float, high: float) -> Interval:
        """An interval all of which is typical."""
        return cls(low, high, low, high)


Constants = tuple[float, ...]
Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Op:
    """One elementwise operation. Templates: {v} the value, {a} and {b} constants, {o} the operand."""

    name: str
    kind: Kind
    torch: str
    c: str
    spoken: str
    """For descriptions, in mathematical notation."""
    span: Callable[[Bounds, Constants, Bounds], Bounds]
    """Range of the result from the ranges of value and operand."""
    domain: Bounds = (-LIMIT, LIMIT)
    """Where the operation is defined and well conditioned."""
    live: Bounds | None = None
    """The typical values must reach into this range on both sides' terms (see `bites`)."""
    atoms: tuple[str, ...] = ()
    """Its meaning in the atoms of `canonical`; () stands for its own name."""
    constants: tuple[Constants, ...] = ((),)
    """Choices that the catalogue draws from; names may carry any others."""
    operand_range: Bounds = (-2.0, 2.0)


def _monotone(f: Callable[[float], float]) -> Callable[[Bounds, Constants, Bounds], Bounds]:
    def span(v: Bounds, constants: Constants, operand: Bounds) -> Bounds:
        low, high = f(v[0]), f(v[1])
        return min(low, high), max(low, high)

    return span


def _sampled(f: Callable[[float], float]) -> Callable[[Bounds, Constants, Bounds], Bounds]:
    """Range of a function that is not monotone, from 257 samples: bounds are not exact, and none
    of these functions has an edge between two samples that a domain depends on."""

    def span(v: Bounds, constants: Constants, operand: Bounds) -> Bounds:
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
        "fmaxf({v}, 0.0f)",
        "relu({v})",
        _monotone(lambda x: max(x, 0.0)),
        live=(0.0, 0.0),
        atoms=("clip",),
    ),
    Op("abs", "math", "torch.abs({v})", "fabsf({v})", "|{v}|", _sampled(abs), live=(0.0, 0.0)),
    Op("neg", "math", "-{v}", "-{v}", "-{v}", _monotone(lambda x: -x), atoms=("scale",)),
    Op(
        "square",
        "math",
        "{v} * {v}",
        "{v} * {v}",
        "{v}^2",
        _sampled(lambda x: x * x),
        domain=(-1e3, 1e3),
    ),
    Op(
        "cube",
        "math",
        "{v} * {v} * {v}",
        "{v} * {v} * {v}",
        "{v}^3",
        _monotone(lambda x: x**3),
        domain=(-50.0, 50.0),
    ),
    Op(
        "exp",
        "math",
        "torch.exp({v})",
        "expf({v})",
        "exp({v})",
        _monotone(math.exp),
        domain=(-12.0, 5.0),
    ),
    Op(
        "expm1",
        "math",
        "torch.expm1({v})",
        "expm1f({v})",
        "expm1({v})",
        _monotone(math.expm1),
        domain=(-12.0, 5.0),
        atoms=("exp", "shift"),
    ),
    Op(
        "log",
        "math",
        "torch.log({v})",
        "logf({v})",
        "log({v})",
        _monotone(math.log),
        domain=(0.05, LIMIT),
    ),
    Op(
        "log1p",
        "math",
        "torch.log1p({v})",
        "log1pf({v})",
        "log1p({v})",
        _monotone(math.log1p),
        domain=(-0.9, LIMIT),
        atoms=("shift", "log"),
    ),
    Op(
        "sqrt",
        "math",
        "torch.sqrt({v})",
        "sqrtf({v})",
        "sqrt({v})",
        _monotone(math.sqrt),
        domain=(0.0, LIMIT),
    ),
    Op(
        "rsqrt",
        "math",
        "torch.rsqrt({v})",
        "rsqrtf({v})",
        "1/sqrt({v})",
        _monotone(lambda x: 1.0 / math.sqrt(x)),
        domain=(0.05, LIMIT),
        atoms=("sqrt", "recip"),
    ),
    Op(
        "recip",
        "math",
        "1.0 / {v}",
        "1.0f / {v}",
        "1/({v})",
        _monotone(lambda x: 1.0 / x),
        domain=(0.05, LIMIT),
    ),
    Op(
        "sigmoid",
        "math",
        "torch.sigmoid({v})",
        "1.0f / (1.0f + expf(-{v}))",
        "sigmoid({v})",
        _monotone(_sigmoid),
        domain=_SATURATING,
        live=_CUT,
        atoms=("scale", "exp", "shift", "recip"),
    ),
    Op(
        "tanh",
        "math",
        "torch.tanh({v})",
        "tanhf({v})",
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
        "{v} / (1.0f + expf(-{v}))",
        "silu({v})",
        _sampled(lambda x: x * _sigmoid(x)),
        domain=_SATURATING,
        live=_CUT,
    ),
    Op(
        "gelu",
        "activation",
        "F.gelu({v})",
        "0.5f * {v} * (1.0f + erff({v} * 0.70710678f))",
        "gelu({v})",
        _sampled(_gelu),
        domain=_SATURATING,
        live=_CUT,
    ),
    Op(
        "gelutanh",
        "activation",
        "F.gelu({v}, approximate='tanh')",
        "0.5f * {v} * (1.0f + tanhf(0.79788456f * ({v} + 0.044715f * {v} * {v} * {v})))",
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
        "{v} > 0.0f ? {v} : {a}f * {v}",
        "leaky_relu({v}, {a})",
        _with_constants(lambda x, a: x if x > 0 else a * x),
        live=(0.0, 0.0),
        constants=((0.1,), (0.01,), (0.2,)),
    ),
    Op(
        "elu",
        "activation",
        "F.elu({v})",
        "{v} > 0.0f ? {v} : expm1f({v})",
        "elu({v})",
        _monotone(_elu),
        domain=_SATURATING,
        live=(0.0, 0.0),
    ),
    Op(
        "selu",
        "activation",
        "F.selu({v})",
        "1.05070099f * ({v} > 0.0f ? {v} : 1.67326324f * expm1f({v}))",
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
        "log1pf(expf({v}))",
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
        "-log1pf(expf(-{v}))",
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
        "fminf(fmaxf({v}, 0.0f), 6.0f)",
        "relu6({v})",
        _monotone(lambda x: min(max(x, 0.0), 6.0)),
        live=(0.0, 0.0),
        atoms=("clip",),
    ),
    Op(
        "hardtanh",
        "activation",
        "F.hardtanh({v})",
        "fminf(fmaxf({v}, -1.0f), 1.0f)",
        "hardtanh({v})",
        _monotone(lambda x: min(max(x, -1.0), 1.0)),
        live=(-1.0, 1.0),
        atoms=("clip",),
    ),
    Op(
        "hardsigmoid",
        "activation",
        "F.hardsigmoid({v})",
        "fminf(fmaxf({v} + 3.0f, 0.0f), 6.0f) / 6.0f",
        "hardsigmoid({v})",
        _monotone(lambda x: min(max(x + 3.0, 0.0), 6.0) / 6.0),
        live=(-3.0, 0.0),
        atoms=("shift", "clip", "scale"),
    ),
    Op(
        "hardswish",
        "activation",
        "F.hardswish({v})",
        "{v} * fminf(fmaxf({v} + 3.0f, 0.0f), 6.0f) / 6.0f",
        "hardswish({v})",
        _sampled(lambda x: x * min(max(x + 3.0, 0.0), 6.0) / 6.0),
        live=(-3.0, 0.0),
    ),
    Op(
        "mish",
        "activation",
        "F.mish({v})",
        "{v} * tanhf(log1pf(expf({v})))",
        "mish({v})",
        _sampled(lambda x: x * math.tanh(_softplus(x))),
        domain=(-12.0, 12.0),
        live=_CUT,
    ),
    Op(
        "softsign",
        "activation",
        "F.softsign({v})",
        "{v} / (1.0f + fabsf({v}))",
        "softsign({v})",
        _monotone(lambda x: x / (1.0 + abs(x))),
        domain=(-100.0, 100.0),
    ),
    Op(
        "softshrink",
        "activation",
        "F.softshrink({v}, {a})",
        "{v} > {a}f ? {v} - {a}f : ({v} < -{a}f ? {v} + {a}f : 0.0f)",
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
        "{v} + {a}f",
        "{v} + {a}",
        _with_constants(lambda x, a: x + a),
        atoms=("shift",),
        constants=((1.0,), (0.5,), (2.0,), (3.0,), (0.25,), (1.5,)),
    ),
    Op(
        "sub",
        "scalar",
        "{v} - {a}",
        "{v} - {a}f",
        "{v} - {a}",
        _with_constants(lambda x, a: x - a),
        atoms=("shift",),
        constants=((1.0,), (0.5,), (2.0,), (1.5,)),
    ),
    Op(
        "mul",
        "scalar",
        "{v} * {a}",
        "{v} * {a}f",
        "{v} * {a}",
        _with_constants(lambda x, a: x * a),
        atoms=("scale",),
        constants=((2.0,), (0.5,), (3.0,), (0.1,), (1.5,), (-2.0,)),
    ),
    Op(
        "div",
        "scalar",
        "{v} / {a}",
        "{v} / {a}f",
        "{v} / {a}",
        _with_constants(lambda x, a: x / a),
        atoms=("scale",),
        constants=((3.0,), (5.0,), (7.0,), (1.7,)),
    ),
    Op(
        "rsub",
        "scalar",
        "{a} - {v}",
        "{a}f - {v}",
        "{a} - {v}",
        _with_constants(lambda x, a: a - x),
        atoms=("scale", "shift"),
        constants=((1.0,), (2.0,), (0.5,), (3.0,)),
    ),
    Op(
        "rdiv",
        "scalar",
        "{a} / {v}",
        "{a}f / {v}",
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
        "fmaxf({v}, {a}f)",
        "max({v}, {a})",
        _with_constants(max),
        atoms=("clip",),
        constants=((-1.0,), (0.5,), (0.1,), (-0.5,)),
    ),
    Op(
        "clampmax",
        "scalar",
        "torch.clamp({v}, max={a})",
        "fminf({v}, {a}f)",
        "min({v}, {a})",
        _with_constants(min),
        atoms=("clip",),
        constants=((1.0,), (0.5,), (1.5,), (2.0,)),
    ),
    Op(
        "clamp",
        "scalar",
        "torch.clamp({v}, {a}, {b})",
        "fminf(fmaxf({v}, {a}f), {b}f)",
        "clamp({v}, {a}, {b})",
        _with_constants(lambda x, a, b: min(max(x, a), b)),
        atoms=("clip",),
        constants=((-1.0, 1.0), (0.0, 1.0), (-0.5, 0.5), (-2.0, 1.5), (0.5, 1.5)),
    ),
)

_OPERANDS = (
    Op("add", "operand", "{v} + {o}", "{v} + {o}", "{v} + {o}", _with_operand(lambda x, y: x + y)),
    Op(
        "sub",
        "operand",
        "{v} - {o}",
        "{v} - {o}",
        "{v} - {o}",
        _with_operand(lambda x, y: x - y),
        atoms=("add",),
    ),
    Op("mul", "operand", "{v} * {o}", "{v} * {o}", "{v} * {o}", _with_operand(lambda x, y: x * y)),
    Op(
        "div",
        "operand",
        "{v} / {o}",
        "{v} / {o}",
        "{v} / {o}",
        _with_operand(lambda x, y: x / y),
        operand_range=(0.5, 2.0),
    ),
    Op(
        "max",
        "operand",
        "torch.maximum({v}, {o})",
        "fmaxf({v}, {o})",
        "max({v}, {o})",
        _with_operand(max),
    ),
    Op(
        "min",
        "operand",
        "torch.minimum({v}, {o})",
        "fminf({v}, {o})",
        "min({v}, {o})",
        _with_operand(min),
        atoms=("max",),
    ),
)

OPERAND_SUFFIX: dict[str, Operand] = {"": "full", "row": "row", "col": "col", "scalar": "scalar"}

UNARY_OPS: dict[str, Op] = {op.name: op for op in (*_MATH, *_ACTIVATIONS)}
SCALAR_OPS: dict[str, Op] = {op.name: op for op in _SCALARS}
OPERAND_OPS: dict[str, Op] = {op.name: op for op in _OPERANDS}


@dataclass(frozen=True, slots=True)
class Step:
    """An operation with its constants, or with the kind of its other input."""

    op: Op
    constants: Constants = ()
    operand: Operand | None = None

    @property
    def name(self) -> str:
        """Token of the task's name: `relu`, `mul0p5`, `clampm1to1`, `addrow`, `add`."""
        if self.operand is not None:
            return self.op.name + ("" if self.operand == "full" else self.operand)
        return self.op.name + "to".join(_spell(c) for c in self.constants)

    @property
    def key(self) -> str:
        """The operation without its constants, for `Task.ops`."""
        if self.operand is not None:
            return f"{self.op.name}_{self.operand}"
        return f"{self.op.name}_const" if self.op.kind == "scalar" else self.op.name

    def render(self, template: str, value: str, operand: str = "") -> str:
        """One of the op's templates with everything filled in."""
        a, b = (*map(str, self.constants), "", "")[:2]
        return template.format(v=value, a=a, b=b, o=operand)

    def apply(self, value: Interval) -> Interval | None:
        """The result's interval; None where the step leaves its domain or would change nothing."""
        op = self.op
        if value.low < op.domain[0] or value.high > op.domain[1]:
            return None
        if not self._bites(value):
            return None
        operand = op.operand_range
        low, high = op.span((value.low, value.high), self.constants, operand)
        typical = op.span((value.typical_low, value.typical_high), self.constants, operand)
        if max(abs(low), abs(high)) > LIMIT or typical[1] - typical[0] < 0.02:
            return None
        return Interval(low, high, *typical)

    def _bites(self, value: Interval) -> bool:
        """Whether a good part of the typical values is cut or bent by this step."""
        low, high = value.typical_low, value.typical_high
        margin = 0.1 * (high - low)
        if self.op.name in ("clampmin", "clampmax", "clamp"):
            edges = [c for c in self.constants if low + margin < c < high - margin]
            return len(edges) == len(self.constants)
        if self.op.name in ("max", "min"):
            other_low, other_high = self.op.operand_range
            return low < other_high - margin and high > other_low + margin
        if self.op.live is None:
            return True
        live_low, live_high = self.op.live
        if live_low == live_high:
            return low + margin < live_low < high - margin
        return low < live_high and high > live_low and high - low > 0.25


def _spell(constant: float) -> str:
    """0.5 as `0p5`, -1.0 as `m1`: safe in file names."""
    text = f"{constant:g}"
    return text.replace("-", "m").replace(".", "p")


def _constant(text: str) -> float | None:
    try:
        value = float(text.replace("m", "-").replace("p", "."))
    except ValueError:
        return None
    return value if _spell(value) == text else None


def parse_step(token: str) -> Step | None:
    """The step that a name's token stands for; None where there is none."""
    if token in UNARY_OPS and UNARY_OPS[token].constants == ((),):
        return Step(UNARY_OPS[token])
    for base in sorted(OPERAND_OPS, key=len, reverse=True):
        rest = token.removeprefix(base)
        if token.startswith(base) and rest in OPERAND_SUFFIX:
            return Step(OPERAND_OPS[base], operand=OPERAND_SUFFIX[rest])
    for ops in (SCALAR_OPS, UNARY_OPS):
        for base in sorted(ops, key=len, reverse=True):
            if not token.startswith(base):
                continue
            constants = [_constant(part) for part in token.removeprefix(base).split("to")]
            wanted = len(ops[base].constants[0])
            if wanted == len(constants) and all(c is not None for c in constants):
                return Step(ops[base], tuple(c for c in constants if c is not None))
    return None
