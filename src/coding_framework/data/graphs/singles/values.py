"""Elementwise operations: of a tensor, with a number, with another tensor."""

from __future__ import annotations

from coding_framework.data.graphs.draw import Draw, Dull, is_channels
from coding_framework.data.graphs.elementwise import act
from coding_framework.data.graphs.nodes import ONE, Extent, Given, Node

_UNARY: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("erf", "erff({0})", ("torch.erf({0})", "{0}.erf()")),
    ("exp", "expf({0})", ("torch.exp({0})", "{0}.exp()")),
    ("erfc", "erfcf({0})", ("torch.erfc({0})",)),
    ("sign", "{0} > 0.0f ? 1.0f : ({0} < 0.0f ? -1.0f : 0.0f)", ("torch.sign({0})", "{0}.sign()")),
    ("expm1", "expm1f({0})", ("torch.expm1({0})",)),
    ("atan", "atanf({0})", ("torch.atan({0})",)),
    ("round", "rintf({0})", ("torch.round({0})", "{0}.round()")),
    ("floor", "floorf({0})", ("torch.floor({0})",)),
    ("neg", "-{0}", ("-{0}", "torch.neg({0})")),
    ("mish", "mish({0})", ("F.mish({0})",)),
    ("hardswish", "hardswish({0})", ("F.hardswish({0})",)),
    ("softsign", "softsign({0})", ("F.softsign({0})",)),
    ("selu", "selu({0})", ("F.selu({0})", "torch.selu({0})")),
    ("gelu_tanh", "gelu_tanh({0})", ('F.gelu({0}, approximate="tanh")',)),
    ("relu6", "fminf(fmaxf({0}, 0.0f), 6.0f)", ("F.relu6({0})",)),
    ("softplus", "softplus({0})", ("F.softplus({0})", "F.softplus({0})")),
    ("logsigmoid", "log_sigmoid({0})", ("F.logsigmoid({0})",)),
    ("frac", "{0} - truncf({0})", ("torch.frac({0})", "{0}.frac()")),
    ("hardtanh", "fminf(fmaxf({0}, -1.0f), 1.0f)", ("F.hardtanh({0})",)),
    ("clamp", "fmaxf({0}, 0.0f)", ("{0}.clamp_min(0)", "{0}.clamp(min=0)", "{0}.clamp_min(0.0)")),
    ("abs", "fabsf({0})", ("{0}.abs()", "torch.abs({0})")),
    ("rdiv", "2.0f / {0}", ("2.0 / {0}",)),
    ("cube", "cube({0})", ("torch.pow({0}, 3)", "{0} ** 3")),
    ("sign", "{0} > 0.0f ? 1.0f : 0.0f", ("({0} > 0).float()",)),
)


_POSITIVE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("log", "logf({0})", ("torch.log({0})", "{0}.log()")),
    ("log", "logf(fmaxf({0}, 1e-06f))", ("torch.log({0}.clamp(min=1e-6))",)),
    ("log", "logf({0} + 1e-08f)", ("torch.log({0} + 1e-8)",)),
    ("log10", "log10f({0})", ("torch.log10({0})", "{0}.log10()")),
    ("log2", "log2f({0})", ("torch.log2({0})",)),
    ("rdiv", "1.0f / {0}", ("1.0 / {0}", "1 / {0}")),
    ("sqrt", "sqrtf({0})", ("torch.sqrt({0})", "{0}.sqrt()")),
    ("rsqrt", "rsqrtf({0} + 1e-05f)", ("torch.rsqrt({0} + 1e-5)",)),
    ("rsqrt", "rsqrtf({0})", ("torch.rsqrt({0})", "{0}.rsqrt()")),
    ("reciprocal", "1.0f / {0}", ("1.0 / {0}", "torch.reciprocal({0})", "1 / {0}")),
    ("pow", "powf({0}, 0.75f)", ("{0} ** 0.75", "torch.pow({0}, 0.75)")),
)


_NUMBERS = (0.5, 2.0, 0.1, 1.5, 3.0, 0.25, 0.7, 1.4142135623730951, 0.044715, 1e-5, 10.0, 0.125)


_TRUNCATED = (
    ("truncf({0})", "{0}.long().float()"),
    ("truncf({0})", "{0}.int().float()"),
    ("truncf({0}) + 1.0f", "({0}.long() + 1).float()"),
    ("truncf({0})", "torch.trunc({0})"),
    ("{0} - truncf({0})", "{0} - {0}.long().float()"),
    ("{0} - floorf({0})", "{0} - {0}.floor()"),
    ("truncf({0}) + 1.0f - {0}", "({0}.long() + 1).float() - {0}"),
    ("{0} > {1}f ? 1.0f : 0.0f", "({0} > {1}).float()"),
    ("{0} <= {1}f ? 1.0f : 0.0f", "({0} <= {1}).to({0}.dtype)"),
    ("fabsf({0}) < {1}f ? {0} : 0.0f", "torch.where({0}.abs() < {1}, {0}, torch.zeros_like({0}))"),
)
"""What a float is as a whole number, and how it compares with a number, the argument {1}."""


def new_input(d: Draw, dims: tuple[Extent, ...], **more: object) -> Given:
    return d.input(dims, f"in{len(d.inputs)}", **more)


def require_plain(d: Draw, *ranks: int) -> None:
    """Raises Dull where the tensor in hand is no input of such a rank, or has an axis of one."""
    if len(d.h.dims) not in ranks or not isinstance(d.h, Given) or any(e.is_one for e in d.h.dims):
        raise Dull


def chain(d: Draw) -> Node:
    """One elementwise operation."""
    rng = d.rng
    if isinstance(d.h, Given) and d.h.low is not None:
        name, c, spelled = rng.choice(_POSITIVE)
        d.ops.append(name)
        return d.each(c, rng.choice(spelled), d.h)
    form = rng.random()
    if form < 0.12:
        return act(d, d.h)
    if form < 0.24:
        name, c, spelled = rng.choice(_UNARY)
        d.ops.append(name)
        return d.each(c, rng.choice(spelled), d.h)
    if form < 0.45:
        return _with_number(d)
    if form < 0.5:
        return _by_root(d)
    return _with_tensor(d)


def _with_number(d: Draw) -> Node:
    value = d.rng.choice(_NUMBERS)
    c, python = d.rng.choice((
        (f"{{0}} * {value}f", f"{{0}} * {value}"),
        (f"{{0}} * {value}f", f"{value} * {{0}}"),
        (f"{{0}} / {value}f", f"{{0}} / {value}"),
        (f"{{0}} + {value}f", f"{{0}} + {value}"),
        (f"{{0}} - {value}f", f"{{0}} - {value}"),
        (f"{value}f - {{0}}", f"{value} - {{0}}"),
        ("1.0f - {0}", "1 - {0}"),
        ("{0} + 1.0f", "{0} + 1"),
        (f"fmaxf({{0}}, {value}f)", f"{{0}}.clamp(min={value})"),
        (f"fmaxf({{0}}, {value}f)", f"torch.clamp({{0}}, min={value})"),
        (f"fminf({{0}}, {value}f)", f"{{0}}.clamp(max={value})"),
        (f"fminf(fmaxf({{0}}, -{value}f), {value}f)", f"{{0}}.clamp(-{value}, {value})"),
        ("fminf(fmaxf({0}, 0.0f), 1.0f)", "{0}.clamp(0, 1)"),
    ))  # fmt: skip
    d.ops.append("scalar")
    return d.each(c, python, d.h)


def truncated(d: Draw) -> Node:
    c, python = d.rng.choice(_TRUNCATED)
    value = str(d.rng.choice(_NUMBERS))
    d.ops.append("trunc")
    return d.each(c.replace("{1}", value), python.replace("{1}", value), d.h)


def with_given_number(d: Draw) -> Node:
    """With a number that `Model` is given, another one for each size."""
    rng = d.rng
    values: tuple[float | int, ...]
    if rng.random() < 0.5:
        values = tuple(round(rng.uniform(0.05, 4.0), 3) for _ in range(6))
    else:
        values = tuple(
            rng.sample((3, 5, 7, 9, 12, 17, 21, 64, 100, 196, 200, 3000, 8112, 32768), 6)
        )
    c, python = rng.choice((
        ("{0} * <q>", "{0} * <q>"),
        ("{0} * <q>", "<q> * {0}"),
        ("{0} / <q>", "{0} / <q>"),
        ("{0} / <q>", "torch.div({0}, <q>)"),
        ("{0} + <q>", "{0} + <q>"),
        ("{0} - <q>", "{0} - <q>"),
        ("<q> - {0}", "<q> - {0}"),
        ("fminf({0}, <q>)", "{0}.clamp(max=<q>)"),
        ("fmaxf({0}, <q>)", "{0}.clamp(min=<q>)"),
        ("fminf(fmaxf({0}, 0.0f), <q>)", "{0}.clamp(min=0, max=<q>)"),
        ("fminf(fmaxf({0}, 0.0f), <q>)", "torch.clamp({0}, 0, <q>)"),
        ("{0} > <q> ? 1.0f : 0.0f", "({0} > <q>).float()"),
    ))  # fmt: skip
    d.constants["q"] = values
    d.ops.append("scalar")
    return d.each(c, python, d.h)


def _by_root(d: Draw) -> Node:
    """By the root of an extent."""
    if len(d.h.dims) < 2 or not d.h.dims[-1].text.isalpha():
        raise Dull
    said = d.h.dims[-1].text
    d.ops.append("scalar")
    if d.rng.random() < 0.5:
        return d.each(f"{{0}} / sqrtf((float){said})", "{0} / {0}.size(-1) ** 0.5", d.h)
    return d.each(f"{{0}} * rsqrtf((float){said})", "{0} * {0}.size(-1) ** -0.5", d.h)


def _with_tensor(d: Draw) -> Node:
    """With another tensor, of its extents or broadcast; it may stand first."""
    rng, dims = d.rng, d.h.dims
    if len(d.inputs) + len(d.layers) > 3 or not dims:
        raise Dull
    of_axes = len(dims) >= len(d.axes)
    if of_axes and all(e.is_one or e == own for e, own in zip(dims, d.axes, strict=False)):
        dims = d.axes  # it may be broadcast itself
    y: Given
    form = rng.random()
    if form < 0.45:
        y = new_input(d, dims)
    elif form < 0.6 and is_channels(dims[-1]) and dims[-1].text.isalpha():
        start = d.pick("torch.ones({})", "torch.zeros({})", "torch.randn({}) * 0.1")
        y = d.parameter(dims[-1:], start, "weight", "bias", "scale", "gamma", "beta", "g")
    elif form < 0.68 and len(dims) == 4:
        y = new_input(d, rng.choice(((dims[0], dims[1], ONE, ONE), (dims[1], ONE, ONE))))
    elif form < 0.7:
        y = new_input(d, ())
    elif form < 0.72:
        y = new_input(d, (ONE,))
    else:
        small = tuple(ONE if rng.random() < 0.45 else e for e in dims)
        if rng.random() < 0.3:
            small = small[1:]
        if not small or all(e.is_one for e in small):
            raise Dull
        y = new_input(d, small)
    d.ops.append("input")
    if y in d.inputs and rng.random() < 0.1:
        y.low = 0.1
        return d.each("{0} / {1}", d.pick("{0} / {1}", "torch.div({0}, {1})"), d.h, y)
    forms: tuple[tuple[str, str], ...] = (
        ("{0} + {1}", "{0} + {1}"),
        ("{0} + {1}", "{1} + {0}"),
        ("{0} * {1}", "{0} * {1}"),
        ("{0} * {1}", "{1} * {0}"),
        ("{0} - {1}", "{0} - {1}"),
        ("{1} - {0}", "{1} - {0}"),
        ("fmaxf({0}, {1})", "torch.maximum({0}, {1})"),
        ("fminf({0}, {1})", "torch.minimum({0}, {1})"),
        ("{0} + 0.5f * {1}", "torch.add({0}, {1}, alpha=0.5)"),
        ("hypotf({0}, {1})", "torch.hypot({0}, {1})"),
        ("{0} + 0.3f * ({1} - {0})", "torch.lerp({0}, {1}, 0.3)"),
        ("{1} > 0.0f ? {0} : 0.1f * {0}", "torch.where({1} > 0, {0}, 0.1 * {0})"),
        ("{1} > 0.0f ? {0} : 0.0f", "{0}.masked_fill({1} <= 0, 0.0)"),
        ("{1} > 0.0f ? {0} : -1e9f", "{0}.masked_fill(~({1} > 0), -1e9)"),
        ("{1} > 0.0f ? {0} : 0.0f", "torch.where({1} > 0, {0}, torch.zeros_like({0}))"),
        ("{1} > 0.0f ? {0} : 0.0f", "{0} * ({1} > 0)"),
    )
    c, python = rng.choice((*forms, *forms[:6]))
    return d.each(c, python, d.h, y)


def of_integers(d: Draw) -> Node:
    """A tensor of whole numbers as floats, and what follows."""
    d.inputs.clear()
    y = d.input(d.x.dims, "in0", dtype="int64", high=Extent.number(d.rng.choice((2, 10, 100))))
    d.ops.append("float")
    said = d.pick("{0}.float()", "{0}.to(torch.float32)")
    cast = d.each("(float){0}", said, y)
    d.h = cast
    return _with_number(d) if d.rng.random() < 0.6 else cast


def pairwise_loss(d: Draw) -> Node:
    """Of each element and its target."""
    y = new_input(d, d.h.dims)
    d.ops.append("error")
    none = ', reduction="none"'
    c, python = d.rng.choice((
        ("square({0} - {1})", f"F.mse_loss({{0}}, {{1}}{none})"),
        ("fabsf({0} - {1})", f"F.l1_loss({{0}}, {{1}}{none})"),
        ("huber({0} - {1})", f"F.smooth_l1_loss({{0}}, {{1}}{none})"),
        ("fmaxf({0}, 0.0f) - {0} * {1} + log1pf(expf(-fabsf({0})))",
         f"F.binary_cross_entropy_with_logits({{0}}, {{1}}{none})"),
        ("{1} * (logf({1}) - {0})", f"F.kl_div({{0}}, {{1}}{none})"),
        ("fmaxf(1.0f - {0} * {1}, 0.0f)", "(1 - {0} * {1}).clamp(min=0)"),
    ))  # fmt: skip
    if "logf({1})" in c:
        y.low = 0.1
    return d.each(c, python, d.h, y)
