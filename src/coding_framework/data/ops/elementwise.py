"""Operations with one value for each place: ONE row an operation, under its ATen name.

A row's C expression names the arguments of the operation's schema: {self}, {other}, {alpha}. A
tensor stands as its element at the place, a number as a literal, both in the type that the
operation computes in. {f} is the suffix of functions and literals of that type: exp{f}, 1.0{f}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coding_framework.data.graph import Node


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


def _functions() -> list[Elementwise]:
    """What C has under the same name: `exp` is `expf`."""
    names = (
        "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "erf", "erfc", "sin", "cos", "tan", "tanh",
        "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "log2", "log10", "exp2",
        "lgamma", "erfinv",
    )  # fmt: skip
    return [Elementwise(name, f"{name}{{f}}({{self}})", costly=True) for name in names]


def _comparisons() -> list[Elementwise]:
    signs = {"gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!="}
    return [Elementwise(n, f"{{self}} {s} {{other}}", of_operands=True) for n, s in signs.items()]


ROWS: Sequence[Elementwise] = (
    # arithmetic
    Elementwise("add", "{self} + {alpha} * {other}", truth="{self} || {other}", when=_alpha("+")),
    Elementwise("sub", "{self} - {alpha} * {other}", when=_alpha("-")),
    Elementwise("rsub", "{other} - {alpha} * {self}"),
    Elementwise("mul", "{self} * {other}", truth="{self} && {other}"),
    Elementwise("div", "{self} / {other}", when=_rounded_quotient),
    Elementwise("floor_divide", "floor{f}({self} / {other})",
                whole="({self} / {other}) - (({self} % {other} != 0) && "
                "(({self} < 0) != ({other} < 0)))"),
    Elementwise("remainder", _REMAINDER, whole=_WHOLE_REMAINDER),
    Elementwise("fmod", "fmod{f}({self}, {other})", whole="{self} % {other}"),
    Elementwise("neg", "-{self}"),
    Elementwise("abs", "fabs{f}({self})", whole="{self} < 0 ? -{self} : {self}"),
    Elementwise("reciprocal", "1.0{f} / {self}"),
    Elementwise("square", "{self} * {self}"),
    Elementwise("pow", "pow{f}({self}, {exponent})", costly=True, when=_power,
                whole="(int64_t)llrint(pow((double){self}, (double){exponent}))"),
    Elementwise("maximum", "fmax{f}({self}, {other})",
                whole="{self} > {other} ? {self} : {other}", truth="{self} || {other}"),
    Elementwise("minimum", "fmin{f}({self}, {other})",
                whole="{self} < {other} ? {self} : {other}", truth="{self} && {other}"),
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
    # functions of C
    *_functions(),
    Elementwise("floor", "floor{f}({self})", whole="{self}"),
    Elementwise("ceil", "ceil{f}({self})", whole="{self}"),
    Elementwise("trunc", "trunc{f}({self})", whole="{self}"),
    Elementwise("round", "rint{f}({self})", whole="{self}"),
    Elementwise("frac", "{self} - trunc{f}({self})"),
    Elementwise("sign", "(float)(({self} > 0) - ({self} < 0))",
                whole="({self} > 0) - ({self} < 0)"),
    Elementwise("sgn", "(float)(({self} > 0) - ({self} < 0))",
                whole="({self} > 0) - ({self} < 0)"),
    # activations
    Elementwise("relu", "fmax{f}({self}, 0.0{f})", whole="{self} > 0 ? {self} : 0"),
    Elementwise("relu6", "fmin{f}(fmax{f}({self}, 0.0{f}), 6.0{f})"),
    Elementwise("sigmoid", _SIGMOID, costly=True),
    Elementwise("silu", "{self} / (1.0{f} + exp{f}(-{self}))", costly=True),
    Elementwise("gelu", "0.5{f} * {self} * (1.0{f} + erf{f}({self} * 0.7071067811865476{f}))",
                costly=True, when=_gelu),
    Elementwise("mish", "{self} * tanh{f}({self} > 20.0{f} ? {self} : log1p{f}(exp{f}({self})))",
                costly=True),
    Elementwise("softplus", "{self} * {beta} > {threshold} ? {self} : "
                "log1p{f}(exp{f}({self} * {beta})) / {beta}", costly=True),
    Elementwise("elu", "{self} > 0.0{f} ? {scale} * {self} : "
                "{scale} * {alpha} * expm1{f}({self} * {input_scale})", costly=True),
    Elementwise("celu", "{self} > 0.0{f} ? {self} : {alpha} * expm1{f}({self} / {alpha})",
                costly=True),
    Elementwise("selu", "1.0507009873554805{f} * ({self} > 0.0{f} ? {self} : "
                "1.6732632423543772{f} * expm1{f}({self}))", costly=True),
    Elementwise("leaky_relu", "{self} > 0.0{f} ? {self} : {negative_slope} * {self}"),
    Elementwise("prelu", "{self} > 0.0{f} ? {self} : {weight} * {self}"),
    Elementwise("hardtanh", "fmin{f}(fmax{f}({self}, {min_val}), {max_val})"),
    Elementwise("hardsigmoid", "fmin{f}(fmax{f}({self} + 3.0{f}, 0.0{f}), 6.0{f}) / 6.0{f}"),
    Elementwise("hardswish", "{self} * fmin{f}(fmax{f}({self} + 3.0{f}, 0.0{f}), 6.0{f}) / 6.0{f}"),
    Elementwise("hardshrink", "fabs{f}({self}) > {lambd} ? {self} : 0.0{f}"),
    Elementwise("softshrink", "{self} > {lambd} ? {self} - {lambd} : "
                "({self} < -{lambd} ? {self} + {lambd} : 0.0{f})"),
    Elementwise("log_sigmoid", "fmin{f}({self}, 0.0{f}) - log1p{f}(exp{f}(-fabs{f}({self})))",
                costly=True),
    Elementwise("threshold", "{self} > {threshold} ? {self} : {value}"),
    Elementwise("clamp", "fmin{f}(fmax{f}({self}, {min}), {max})", when=_clamped),
    Elementwise("clamp_min", "fmax{f}({self}, {min})"),
    Elementwise("clamp_max", "fmin{f}({self}, {max})"),
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
    Elementwise("clone", "{self}"),
    Elementwise("alias", "{self}"),
    Elementwise("detach", "{self}"),
    Elementwise("lift_fresh_copy", "{self}"),
    Elementwise("contiguous", "{self}"),
    Elementwise("_to_copy", "{self}"),
    Elementwise("to", "{self}"),
    Elementwise("dropout", "{input}"),
    Elementwise("native_dropout", "{input}"),
    Elementwise("copy", "{src}"),
)  # fmt: skip
ELEMENTWISE: Mapping[str, Elementwise] = {row.aten: row for row in ROWS}
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
