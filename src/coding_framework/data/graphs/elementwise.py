"""Idioms of each place: functions, parameters, tensors that are broadcast."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.graphs.draw import Draw, Dull, is_channels, same
from coding_framework.data.graphs.nodes import ONE, Extent, Layer, Node, Places, View

_ACTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "relu": ("fmaxf({0}, 0.0f)", ("F.relu({0})", "torch.relu({0})", "{0}.clamp(min=0)")),
    "gelu": ("gelu({0})", ("F.gelu({0})",)),
    "silu": ("silu({0})", ("F.silu({0})", "{0} * torch.sigmoid({0})")),
    "tanh": ("tanhf({0})", ("torch.tanh({0})", "{0}.tanh()")),
    "sigmoid": ("sigmoid({0})", ("torch.sigmoid({0})", "{0}.sigmoid()")),
    "softplus": ("softplus({0})", ("F.softplus({0})",)),
    "elu": ("elu({0})", ("F.elu({0})",)),
    "leaky_relu": ("leaky_relu({0})", ("F.leaky_relu({0}, 0.1)",)),
    "abs": ("fabsf({0})", ("{0}.abs()", "torch.abs({0})")),
    "square": ("square({0})", ("{0}.pow(2)", "{0} ** 2", "torch.square({0})")),
    "relu_squared": ("square(fmaxf({0}, 0.0f))", ("F.relu({0}).square()", "torch.relu({0}) ** 2")),
    "log1p": ("log1pf(fabsf({0}))", ("torch.log1p({0}.abs())",)),
    "sin": ("sinf({0})", ("torch.sin({0})", "{0}.sin()")),
    "cos": ("cosf({0})", ("torch.cos({0})", "{0}.cos()")),
    "gauss": ("expf(-square({0}))", ("torch.exp(-{0} ** 2)", "torch.exp(-{0}.pow(2))")),
    "hardsigmoid": ("hardsigmoid({0})", ("F.hardsigmoid({0})",)),
    "log_sigmoid": ("log_sigmoid({0})", ("F.logsigmoid({0})",)),
    "sqrt": ("sqrtf(fabsf({0}) + 0.01f)", ("torch.sqrt({0}.abs() + 0.01)",)),
}


SMOOTH = ("relu", "gelu", "silu", "tanh", "sigmoid", "elu", "leaky_relu", "gelu", "relu", "silu")


MODULES = {
    "relu": "nn.ReLU()",
    "gelu": "nn.GELU()",
    "silu": "nn.SiLU()",
    "tanh": "nn.Tanh()",
    "sigmoid": "nn.Sigmoid()",
    "elu": "nn.ELU()",
    "leaky_relu": "nn.LeakyReLU(0.1)",
    "softplus": "nn.Softplus()",
}
"""Functions that are layers too."""


def act(d: Draw, x: Node, name: str = "", names: tuple[str, ...] = ()) -> Node:
    """A function of each value."""
    name = name or d.rng.choice((*_ACTS, *SMOOTH, *SMOOTH))
    c, spelled = _ACTS[name]
    d.ops.append(name)
    python = d.rng.choice(spelled)
    if name in MODULES and d.rng.random() < 0.2:
        attribute = d.attribute("act", "activation", "nonlin")
        d.layers.append(Layer(attribute, MODULES[name], ()))
        python = f"self.{attribute}({{0}})"
    return d.each(c, python, x, names=names)


def c_of(name: str) -> str:
    """The function's expression of {0} in C."""
    return _ACTS[name][0]


def activate(d: Draw) -> Node:
    return act(d, d.h)


def scale_and_shift(d: Draw) -> Node:
    value = d.rng.choice((0.5, 2.0, 0.1, 1.5, 3.0, 0.25, 0.7))
    said = d.constant(d.pick("scale", "factor", "alpha", "temperature", "weight", "beta"), value)
    form = d.rng.randrange(6)
    c, python = (
        (f"{{0}} * {value}f", f"{{0}} * {said}"),
        (f"{{0}} / {value}f", f"{{0}} / {said}"),
        (f"{{0}} + {value}f", f"{{0}} + {said}"),
        (f"{value}f - {{0}}", f"{said} - {{0}}"),
        ("1.0f - {0}", "1 - {0}"),
        (f"fminf(fmaxf({{0}}, -{value}f), {value}f)", f"torch.clamp({{0}}, -{said}, {said})"),
    )[form]
    d.ops.append("scalar")
    return d.each(c, python, d.h)


def per_channel(d: Draw) -> Node:
    """A parameter for each channel, or for each place."""
    rng = d.rng
    d.ops.append("parameter")
    channel = d.h.dims[1] if d.images and len(d.h.dims) == 4 else d.h.dims[-1]
    if not is_channels(channel):
        raise Dull
    if d.images and len(d.h.dims) == 4:
        dims: tuple[Extent, ...] = (
            (channel, ONE, ONE) if rng.random() < 0.5 else (ONE, channel, ONE, ONE)
        )
    elif len(d.h.dims) == 3 and d.h.dims[1].text == "t" and rng.random() < 0.3:
        dims = (ONE, d.h.dims[1], channel) if rng.random() < 0.5 else (d.h.dims[1], channel)
        p = d.parameter(dims, "torch.randn({}) * 0.02", "pos_embed", "position", "pos")
        return d.each("{0} + {1}", "{0} + {1}", d.h, p)
    else:
        dims = (channel,)
    form = rng.randrange(4)
    if form == 0:
        p = d.parameter(dims, "torch.zeros({}) + 0.1", "bias", "shift", "offset", "beta_param")
        return d.each("{0} + {1}", "{0} + {1}", d.h, p)
    if form == 1:
        p = d.parameter(dims, "torch.ones({})", "scale", "gamma", "gain")
        return d.each("{0} * {1}", d.pick("{0} * {1}", "{1} * {0}"), d.h, p)
    if form == 2:
        g = d.parameter(dims, "torch.rand({}) + 0.5", "gamma", "scale", "alpha_param")
        b = d.parameter(dims, "torch.randn({}) * 0.1", "beta_param", "bias", "shift")
        return d.each("{0} * {1} + {2}", "{0} * {1} + {2}", d.h, g, b)
    p = d.parameter(
        dims,
        "torch.full(({},), 0.25)" if len(dims) == 1 else "torch.ones({}) * 0.25",
        "slope",
        "mix",
    )
    return d.each(
        "fmaxf({0}, 0.0f) + {1} * fminf({0}, 0.0f)",
        "torch.clamp({0}, min=0) + {1} * torch.clamp({0}, max=0)",
        d.h,
        p,
    )


def other_input(d: Draw) -> Node:
    """Another tensor of its extents."""
    if len(d.inputs) > 3:
        raise Dull
    rng = d.rng
    y = d.input(
        d.h.dims, rng.choice(("y", "other", "residual", "skip", "context", "target", "prev"))
    )
    d.ops.append("input")
    gate = act(d, y, "sigmoid", ("gate", "g"))
    forms: list[Callable[[], Node]] = [
        lambda: d.each("{0} + {1}", "{0} + {1}", d.h, y),
        lambda: d.each("{0} - {1}", d.pick("{0} - {1}", "torch.sub({0}, {1})"), d.h, y),
        lambda: d.each("{0} * {1}", "{0} * {1}", d.h, gate),
        lambda: (
            d.each("{0} * {1} + (1.0f - {0}) * {2}", "{0} * {1} + (1 - {0}) * {2}", gate, d.h, d.x)
            if same(d.h, d.x)
            else d.each("{0} * (1.0f + {1})", "{0} * (1 + {1})", d.h, y)
        ),
        lambda: d.each("fmaxf({0}, {1})", "torch.maximum({0}, {1})", d.h, y),
        lambda: d.each(
            "{1} > 0.0f ? {0} : 0.1f * {0}", "torch.where({1} > 0, {0}, 0.1 * {0})", d.h, y
        ),
        lambda: d.each("{0} + 0.3f * ({1} - {0})", "torch.lerp({0}, {1}, 0.3)", d.h, y),
        lambda: d.each("{0} / ({1} + 1.0f)", "{0} / ({1} + 1.0)", d.h, act(d, y, "abs")),
        lambda: d.each(
            "{1} > 0.0f ? -1.0f : {0}",
            d.pick(
                "{0}.masked_fill({1} > 0, -1.0)",
                "torch.where({1} > 0, torch.full_like({0}, -1.0), {0})",
            ),
            d.h,
            y,
        ),
    ]
    return rng.choice(forms)()


def lower_rank_input(d: Draw) -> Node:
    """A tensor without some of its axes, which is broadcast."""
    rng, rank = d.rng, len(d.h.dims)
    if rank < 3 or len(d.inputs) > 3:
        raise Dull
    d.ops.append("broadcast")
    if rank == 3:
        if rng.random() < 0.5:
            y = d.input(
                (d.h.dims[0], d.h.dims[2]), "cond", "context", "style", "shift_in", "global_feat"
            )
            python, place = (
                d.pick("{0}.unsqueeze(1)", "{0}[:, None, :]", "{0}[:, None]"),
                keep(0, 2),
            )
            dims: tuple[Extent, ...] = (d.h.dims[0], ONE, d.h.dims[2])
        else:
            y = d.input(d.h.dims[:2], "weights", "mask", "importance", "score")
            python, place = (
                d.pick("{0}.unsqueeze(-1)", "{0}[..., None]", "{0}[:, :, None]"),
                keep(0, 1),
            )
            dims = (*d.h.dims[:2], ONE)
    else:
        y = d.input(d.h.dims[:2], "cond", "gate_in", "style", "channel_weights")
        python = d.pick("{0}[:, :, None, None]", "{0}.unsqueeze(-1).unsqueeze(-1)")
        dims, place = (*d.h.dims[:2], ONE, ONE), keep(0, 1)
    wide = View(dims=dims, args=(y,), python=python, place=place)
    form = rng.randrange(4)
    if form == 0:
        return d.each("{0} + {1}", "{0} + {1}", d.h, wide)
    if form == 1:
        return d.each("{0} * {1}", "{0} * {1}", d.h, act(d, wide, "sigmoid"))
    if form == 2:
        return d.each("{0} * (1.0f + {1})", "{0} * (1 + {1})", d.h, wide)
    return d.each(
        "{1} > 0.0f ? {0} : 0.0f",
        d.pick("{0} * ({1} > 0).float()", "{0}.masked_fill({1} <= 0, 0.0)"),
        d.h,
        wide,
    )


def keep(*axes: int) -> Callable[[Places], list[str]]:
    return lambda p: [p[a] for a in axes]
