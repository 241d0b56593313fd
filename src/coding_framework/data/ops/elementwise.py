"""Operations with one value for each place: ONE row an operation, under its ATen name.

A row's C expression names the arguments of the operation's schema: {self}, {other}, {alpha}. A
tensor stands as its element at the place, a number as a literal, both in the type that the
operation computes in. {f} is the suffix of functions and literals of that type: exp{f}, 1.0{f}.
`drawn` says how functions are drawn with it (`data/synthesis`), and what it is worth in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from coding_framework.data.graph import Node

LIMIT = 1e6
"""Largest magnitude that a drawn value may reach: far from float32's overflow, also when
squared."""
Bounds = tuple[float, float]
Constants = tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A step of drawn functions. Templates: {v} value, {a} and {b} constants, {o} operand."""

    kind: Literal["math", "activation", "scalar", "operand"]
    name: str
    torch: str
    value: Callable[..., Any]
    """Of an array and the constants, or the operand, in numpy."""
    domain: Bounds = (-LIMIT, LIMIT)
    """Where the operation is defined and well conditioned."""
    live: Bounds | None = None
    """The typical values must reach into this range on both sides' terms (see `Step`)."""
    atoms: tuple[str, ...] = ()
    """Its meaning in the atoms of `canonical`; () stands for its own name."""
    constants: tuple[Constants, ...] = ((),)
    """Choices that the catalogue draws from; names may carry any others."""
    operand_range: Bounds = (-2.0, 2.0)
    spoken: str = ""
    """In mathematical notation, where that is not what PyTorch writes."""

    @property
    def said(self) -> str:
        """For descriptions."""
        return self.spoken or self.torch.removeprefix("torch.").removeprefix("F.")

    @lru_cache(maxsize=65536)  # noqa: B019 (the rows live as long as the module)
    def span(self, v: Bounds, constants: Constants) -> Bounds:
        """Range of the result where the value lies in v, from samples: no operation has an edge
        between two of them that a domain depends on."""
        x = np.append(np.linspace(*v, 257), 0.0 if v[0] < 0 < v[1] else v[0])
        with np.errstate(all="ignore"):
            if self.kind == "operand":
                found = self.value(x[:, None], np.array(self.operand_range))
            else:
                found = self.value(x, *constants)
        return float(found.min()), float(found.max())


_math = partial(Drawn, "math")
_activation = partial(Drawn, "activation")
_scalar = partial(Drawn, "scalar")
_operand = partial(Drawn, "operand")
_SATURATING = (-20.0, 20.0)
_CUT = (-3.0, 3.0)
_EDGE = (0.0, 0.0)
_erf = np.vectorize(math.erf)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


def _elu(x: Any) -> Any:
    return np.where(x > 0, x, np.expm1(x))


def _hard_sigmoid(x: Any) -> Any:
    return np.clip(x + 3.0, 0.0, 6.0) / 6.0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An operation: `aten` without its overload, `c` an expression of the schema's arguments."""

    aten: str
    c: str
    whole: str = ""
    """The expression for whole numbers, where it is another one."""
    truth: str = ""
    """The expression for bool, where it is another one."""
    of_operands: bool = False
    """Whether it computes in the type of its operands, its result being bool."""
    costly: bool = False
    """Whether it is worth a place in memory where several kernels read it."""
    when: Callable[[Node], str | None] = lambda node: None
    """Another expression for some arguments; None: `c`."""
    drawn: tuple[Drawn, ...] = ()
    """Steps of drawn functions that it computes. Their order here is that of the draws."""


def _alpha(sign: str) -> Callable[[Node], str | None]:
    def by(node: Node) -> str | None:
        return None if node.get("alpha", 1) != 1 else f"{{self}} {sign} {{other}}"

    return by


def _power(node: Node) -> str | None:
    special: Mapping[float, str] = {
        2: "{self} * {self}", 3: "{self} * {self} * {self}", 0.5: "sqrt{f}({self})",
        1: "{self}", -1: "1.0{f} / {self}", -0.5: "rsqrt{f}({self})",
        4: "({self} * {self}) * ({self} * {self})", 0: "1.0{f}",
    }  # fmt: skip
    exponent = node.get("exponent")
    return special.get(exponent) if isinstance(exponent, (int, float)) else None


def _rounded_quotient(node: Node) -> str | None:
    mode = node.get("rounding_mode")
    whole = "float" not in node.type.dtype
    if mode == "floor":
        return (
            "({self} / {other}) - (({self} % {other} != 0) && (({self} < 0) != ({other} < 0)))"
            if whole
            else "floor{f}({self} / {other})"
        )
    if mode == "trunc":
        return "{self} / {other}" if whole else "trunc{f}({self} / {other})"
    return None


def _clamped(node: Node) -> str | None:
    if node.get("min") is None:
        return "fmin{f}({self}, {max})"
    return "fmax{f}({self}, {min})" if node.get("max") is None else None


def _gelu(node: Node) -> str | None:
    if node.get("approximate", "none") == "none":
        return None
    inner = "0.7978845608028654{f} * ({self} + 0.044715{f} * {self} * {self} * {self})"
    return f"0.5{{f}} * {{self}} * (1.0{{f}} + tanh{{f}}({inner}))"


_SIGMOID = "1.0{f} / (1.0{f} + exp{f}(-{self}))"
_REMAINDER = "{self} - floor{f}({self} / {other}) * {other}"
_WHOLE_REMAINDER = "({self} % {other} + {other}) % {other}"


def _function(name: str, *drawn: Drawn) -> Elementwise:
    """What C has under the same name: `exp` is `expf`."""
    return Elementwise(name, f"{name}{{f}}({{self}})", costly=True, drawn=drawn)


def _comparisons() -> list[Elementwise]:
    signs = {"gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!="}
    return [Elementwise(n, f"{{self}} {s} {{other}}", of_operands=True) for n, s in signs.items()]


ROWS: Sequence[Elementwise] = (
    # arithmetic
    Elementwise(
        "add", "{self} + {alpha} * {other}", truth="{self} || {other}", when=_alpha("+"), drawn=(
            _scalar("add", "{v} + {a}", lambda x, a: x + a, atoms=("shift",),
                    constants=((1.0,), (0.5,), (2.0,), (3.0,), (0.25,), (1.5,))),
            _operand("add", "{v} + {o}", lambda x, y: x + y),
        ),
    ),
    Elementwise(
        "sub", "{self} - {alpha} * {other}", when=_alpha("-"), drawn=(
            _scalar("sub", "{v} - {a}", lambda x, a: x - a, atoms=("shift",),
                    constants=((1.0,), (0.5,), (2.0,), (1.5,))),
            _operand("sub", "{v} - {o}", lambda x, y: x - y, atoms=("add",)),
        ),
    ),
    Elementwise(
        "mul", "{self} * {other}", truth="{self} && {other}", drawn=(
            _scalar("mul", "{v} * {a}", lambda x, a: x * a, atoms=("scale",),
                    constants=((2.0,), (0.5,), (3.0,), (0.1,), (1.5,), (-2.0,))),
            _operand("mul", "{v} * {o}", lambda x, y: x * y),
        ),
    ),
    Elementwise(
        "div", "{self} / {other}", when=_rounded_quotient, drawn=(
            _scalar("div", "{v} / {a}", lambda x, a: x / a, atoms=("scale",),
                    constants=((3.0,), (5.0,), (7.0,), (1.7,))),
            _operand("div", "{v} / {o}", lambda x, y: x / y, operand_range=(0.5, 2.0)),
        ),
    ),
    Elementwise(
        "rsub", "{other} - {alpha} * {self}", drawn=(
            _scalar("rsub", "{a} - {v}", lambda x, a: a - x, atoms=("scale", "shift"),
                    constants=((1.0,), (2.0,), (0.5,), (3.0,))),
        ),
    ),
    Elementwise("floor_divide", "floor{f}({self} / {other})",
                whole="({self} / {other}) - (({self} % {other} != 0) && "
                "(({self} < 0) != ({other} < 0)))"),
    Elementwise("remainder", _REMAINDER, whole=_WHOLE_REMAINDER),
    Elementwise("fmod", "fmod{f}({self}, {other})", whole="{self} % {other}"),
    Elementwise("maximum", "fmax{f}({self}, {other})",
                whole="{self} > {other} ? {self} : {other}", truth="{self} || {other}", drawn=(
                    _operand("max", "torch.maximum({v}, {o})", np.maximum,
                             spoken="max({v}, {o})"),)),
    Elementwise("minimum", "fmin{f}({self}, {other})",
                whole="{self} < {other} ? {self} : {other}", truth="{self} && {other}", drawn=(
                    _operand("min", "torch.minimum({v}, {o})", np.minimum, atoms=("max",),
                             spoken="min({v}, {o})"),)),
    Elementwise("fmax", "fmax{f}({self}, {other})"),
    Elementwise("fmin", "fmin{f}({self}, {other})"),
    Elementwise("atan2", "atan2{f}({self}, {other})", costly=True),
    Elementwise("hypot", "hypot{f}({self}, {other})"),
    Elementwise("xlogy", "{self} == 0.0{f} ? 0.0{f} : {self} * log{f}({other})", costly=True),
    Elementwise("copysign", "copysign{f}({self}, {other})"),
    Elementwise("lerp", "{self} + {weight} * ({end} - {self})"),
    Elementwise("addcmul", "{self} + {value} * {tensor1} * {tensor2}"),
    Elementwise("addcdiv", "{self} + {value} * {tensor1} / {tensor2}"),
    Elementwise("logaddexp", "fmax{f}({self}, {other}) + "
        "log1p{f}(exp{f}(-fabs{f}({self} - {other})))",
                costly=True),
    # functions
    Elementwise("relu", "fmax{f}({self}, 0.0{f})", whole="{self} > 0 ? {self} : 0", drawn=(
        _math("relu", "torch.relu({v})", lambda x: np.maximum(x, 0.0), live=_EDGE,
              atoms=("clip",)),)),
    Elementwise("abs", "fabs{f}({self})", whole="{self} < 0 ? -{self} : {self}", drawn=(
        _math("abs", "torch.abs({v})", np.abs, live=_EDGE, spoken="|{v}|"),)),
    Elementwise("neg", "-{self}", drawn=(
        _math("neg", "-{v}", lambda x: -x, atoms=("scale",)),)),
    Elementwise("square", "{self} * {self}", drawn=(
        _math("square", "{v} * {v}", lambda x: x * x, (-1e3, 1e3), spoken="{v}^2"),)),
    Elementwise("pow", "pow{f}({self}, {exponent})", costly=True, when=_power,
                whole="(int64_t)llrint(pow((double){self}, (double){exponent}))", drawn=(
        _math("cube", "{v} * {v} * {v}", lambda x: x * x * x, (-50.0, 50.0), spoken="{v}^3"),)),
    _function("exp", _math("exp", "torch.exp({v})", np.exp, (-12.0, 5.0))),
    _function("expm1", _math("expm1", "torch.expm1({v})", np.expm1, (-12.0, 5.0),
                             atoms=("exp", "shift"))),
    _function("log", _math("log", "torch.log({v})", np.log, (0.05, LIMIT))),
    _function("log1p", _math("log1p", "torch.log1p({v})", np.log1p, (-0.9, LIMIT),
                             atoms=("shift", "log"))),
    _function("sqrt", _math("sqrt", "torch.sqrt({v})", np.sqrt, (0.0, LIMIT))),
    _function("rsqrt", _math("rsqrt", "torch.rsqrt({v})", lambda x: 1.0 / np.sqrt(x),
                             (0.05, LIMIT), atoms=("sqrt", "recip", "scale"),
                             spoken="1/sqrt({v})")),
    Elementwise("reciprocal", "1.0{f} / {self}", drawn=(
        _math("recip", "1.0 / {v}", lambda x: 1.0 / x, (0.05, LIMIT), atoms=("recip", "scale"),
              spoken="1/({v})"),
        _scalar("rdiv", "{a} / {v}", lambda x, a: a / x, (0.05, LIMIT), atoms=("recip", "scale"),
                constants=((2.0,), (0.5,), (3.0,)), spoken="{a} / ({v})"))),
    Elementwise("sigmoid", _SIGMOID, costly=True, drawn=(
        _math("sigmoid", "torch.sigmoid({v})", _sigmoid, _SATURATING, live=_CUT,
              atoms=("scale", "exp", "shift", "recip", "scale")),)),
    _function("tanh", _math("tanh", "torch.tanh({v})", np.tanh, _SATURATING, live=(-2.0, 2.0),
                            atoms=("scale", "exp", "shift", "recip", "scale", "shift"))),
    *map(_function, (
        "erf", "erfc", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh",
        "acosh", "atanh", "log2", "log10", "exp2", "lgamma", "erfinv",
    )),
    Elementwise("floor", "floor{f}({self})", whole="{self}"),
    Elementwise("ceil", "ceil{f}({self})", whole="{self}"),
    Elementwise("trunc", "trunc{f}({self})", whole="{self}"),
    Elementwise("round", "rint{f}({self})", whole="{self}"),
    Elementwise("frac", "{self} - trunc{f}({self})"),
    *(Elementwise(name, "(float)(({self} > 0) - ({self} < 0))",
                  whole="({self} > 0) - ({self} < 0)") for name in ("sign", "sgn")),
    # activations
    Elementwise("silu", "{self} / (1.0{f} + exp{f}(-{self}))", costly=True, drawn=(
        _activation("silu", "F.silu({v})", lambda x: x * _sigmoid(x), _SATURATING, live=_CUT),)),
    Elementwise("gelu", "0.5{f} * {self} * (1.0{f} + erf{f}({self} * 0.7071067811865476{f}))",
                costly=True, when=_gelu, drawn=(
        _activation("gelu", "F.gelu({v})", lambda x: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))),
                    _SATURATING, live=_CUT),
        _activation("gelutanh", "F.gelu({v}, approximate='tanh')", lambda x: 0.5 * x * (
                    1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
                    _SATURATING, live=_CUT, atoms=("gelu",), spoken="gelu_tanh({v})"))),
    Elementwise("leaky_relu", "{self} > 0.0{f} ? {self} : {negative_slope} * {self}", drawn=(
        _activation("leakyrelu", "F.leaky_relu({v}, {a})", lambda x, a: np.where(x > 0, x, a * x),
                    live=_EDGE, constants=((0.1,), (0.01,), (0.2,))),)),
    Elementwise("elu", "{self} > 0.0{f} ? {scale} * {self} : "
                "{scale} * {alpha} * expm1{f}({self} * {input_scale})", costly=True, drawn=(
        _activation("elu", "F.elu({v})", _elu, _SATURATING, live=_EDGE),)),
    Elementwise("celu", "{self} > 0.0{f} ? {self} : {alpha} * expm1{f}({self} / {alpha})",
                costly=True),
    Elementwise("selu", "1.0507009873554805{f} * ({self} > 0.0{f} ? {self} : "
                "1.6732632423543772{f} * expm1{f}({self}))", costly=True, drawn=(
        _activation("selu", "F.selu({v})",
                    lambda x: 1.0507 * np.where(x > 0, x, 1.67326 * np.expm1(x)), _SATURATING,
                    live=_EDGE, atoms=("elu", "scale")),)),
    Elementwise("softplus", "{self} * {beta} > {threshold} ? {self} : "
                "log1p{f}(exp{f}({self} * {beta})) / {beta}", costly=True, drawn=(
        _activation("softplus", "F.softplus({v})", _softplus, (-12.0, 12.0), live=_CUT,
                    atoms=("exp", "shift", "log")),)),
    Elementwise("log_sigmoid", "fmin{f}({self}, 0.0{f}) - log1p{f}(exp{f}(-fabs{f}({self})))",
                costly=True, drawn=(
        _activation("logsigmoid", "F.logsigmoid({v})", lambda x: -_softplus(-x), (-12.0, 12.0),
                    live=_CUT, atoms=("scale", "exp", "shift", "log", "scale")),)),
    Elementwise("relu6", "fmin{f}(fmax{f}({self}, 0.0{f}), 6.0{f})", drawn=(
        _activation("relu6", "F.relu6({v})", lambda x: np.clip(x, 0.0, 6.0), live=_EDGE,
                    atoms=("clip",)),)),
    Elementwise("hardtanh", "fmin{f}(fmax{f}({self}, {min_val}), {max_val})", drawn=(
        _activation("hardtanh", "F.hardtanh({v})", lambda x: np.clip(x, -1.0, 1.0),
                    live=(-1.0, 1.0), atoms=("clip",)),)),
    Elementwise("hardsigmoid", "fmin{f}(fmax{f}({self} + 3.0{f}, 0.0{f}), 6.0{f}) / 6.0{f}",
                drawn=(
        _activation("hardsigmoid", "F.hardsigmoid({v})", _hard_sigmoid, live=(-3.0, 0.0),
                    atoms=("shift", "clip", "scale")),)),
    Elementwise("hardswish", "{self} * fmin{f}(fmax{f}({self} + 3.0{f}, 0.0{f}), 6.0{f}) / 6.0{f}",
                drawn=(
        _activation("hardswish", "F.hardswish({v})", lambda x: x * _hard_sigmoid(x),
                    live=(-3.0, 0.0)),)),
    Elementwise("mish", "{self} * tanh{f}({self} > 20.0{f} ? {self} : log1p{f}(exp{f}({self})))",
                costly=True, drawn=(
        _activation("mish", "F.mish({v})", lambda x: x * np.tanh(_softplus(x)), (-12.0, 12.0),
                    live=_CUT),)),
    Elementwise("softsign", "{self} / (1.0{f} + fabs{f}({self}))", drawn=(
        _activation("softsign", "F.softsign({v})", lambda x: x / (1.0 + np.abs(x)),
                    (-100.0, 100.0)),)),
    Elementwise("softshrink", "{self} > {lambd} ? {self} - {lambd} : "
                "({self} < -{lambd} ? {self} + {lambd} : 0.0{f})", drawn=(
        _activation("softshrink", "F.softshrink({v}, {a})",
                    lambda x, a: np.copysign(np.maximum(np.abs(x) - a, 0.0), x), live=(-0.5, 0.5),
                    constants=((0.5,), (0.25,))),)),
    Elementwise("hardshrink", "fabs{f}({self}) > {lambd} ? {self} : 0.0{f}"),
    Elementwise("prelu", "{self} > 0.0{f} ? {self} : {weight} * {self}"),
    Elementwise("threshold", "{self} > {threshold} ? {self} : {value}"),
    Elementwise("clamp_min", "fmax{f}({self}, {min})", drawn=(
        _scalar("clampmin", "torch.clamp({v}, min={a})", np.maximum, atoms=("clip",),
                constants=((-1.0,), (0.5,), (0.1,), (-0.5,)), spoken="max({v}, {a})"),)),
    Elementwise("clamp_max", "fmin{f}({self}, {max})", drawn=(
        _scalar("clampmax", "torch.clamp({v}, max={a})", np.minimum, atoms=("clip",),
                constants=((1.0,), (0.5,), (1.5,), (2.0,)), spoken="min({v}, {a})"),)),
    Elementwise("clamp", "fmin{f}(fmax{f}({self}, {min}), {max})", when=_clamped, drawn=(
        _scalar("clamp", "torch.clamp({v}, {a}, {b})", np.clip, atoms=("clip",),
                constants=((-1.0, 1.0), (0.0, 1.0), (-0.5, 0.5), (-2.0, 1.5), (0.5, 1.5))),)),
    # truth
    *_comparisons(),
    Elementwise("logical_and", "{self} && {other}", of_operands=True),
    Elementwise("logical_or", "{self} || {other}", of_operands=True),
    Elementwise("logical_xor", "!{self} != !{other}", of_operands=True),
    Elementwise("logical_not", "!{self}", of_operands=True),
    Elementwise("bitwise_not", "~{self}", truth="!{self}"),
    Elementwise("bitwise_and", "{self} & {other}", truth="{self} && {other}"),
    Elementwise("bitwise_or", "{self} | {other}", truth="{self} || {other}"),
    Elementwise("bitwise_xor", "{self} ^ {other}", truth="{self} != {other}"),
    Elementwise("__lshift__", "{self} << {other}"),
    Elementwise("__rshift__", "{self} >> {other}"),
    Elementwise("bitwise_left_shift", "{self} << {other}"),
    Elementwise("bitwise_right_shift", "{self} >> {other}"),
    Elementwise("isnan", "isnan({self})", of_operands=True),
    Elementwise("isinf", "isinf({self})", of_operands=True),
    Elementwise("where", "{condition} ? {self} : {other}"),
    Elementwise("masked_fill", "{mask} ? {value} : {self}"),
    # the same value in another place or type
    *(Elementwise(name, "{self}") for name in (
        "clone", "alias", "detach", "lift_fresh_copy", "contiguous", "_to_copy", "to",
    )),
    *(Elementwise(name, "{input}") for name in ("dropout", "native_dropout")),
    Elementwise("copy", "{src}"),
)  # fmt: skip
ELEMENTWISE: Mapping[str, Elementwise] = {row.aten: row for row in ROWS}


def drawn_of(*kinds: str) -> Iterator[Drawn]:
    """The steps of these kinds, in the order of the kinds and of the table."""
    for kind in kinds:
        yield from (one for row in ELEMENTWISE.values() for one in row.drawn if one.kind == kind)


CONDITIONS = ("condition", "mask")
"""Arguments that are bool whatever the operation computes in."""


def expression_of(row: Elementwise, node: Node, dtype: str) -> str:
    """The row's expression for the type that it computes in."""
    other = row.when(node)
    if dtype == "bool" and row.truth:
        return row.truth
    if "float" not in dtype and row.whole:
        return row.whole
    if other is not None and "float" not in dtype:
        return other.replace("fmax{f}", "max").replace("fmin{f}", "min")
    if "float" not in dtype:
        return row.c.replace("fmax{f}", "max").replace("fmin{f}", "min")
    return other if other is not None else row.c


def is_value(argument: Any) -> bool:
    """Whether an argument of a schema is one that an expression can name."""
    return argument is not None and not isinstance(argument, (str, list))
