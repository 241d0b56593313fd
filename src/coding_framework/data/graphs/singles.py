"""Graphs of one loop, one move of elements or none, with elementwise operations before and after
it: what modules are taken apart into (`data/parts`), also where no step of the grammar gives it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from coding_framework.data.graphs.draw import Draw, Dull, is_channels
from coding_framework.data.graphs.elementwise import act, keep
from coding_framework.data.graphs.loops import window_layer
from coding_framework.data.graphs.nodes import (
    ONE,
    PASSED,
    PASSED_BOTH,
    Each,
    Extent,
    Given,
    Graph,
    Head,
    Joined,
    Node,
    Places,
    View,
)

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
    ("cube", "cube({0})", ("torch.pow({0}, 3)", "{0} ** 3")),
    ("sign", "{0} > 0.0f ? 1.0f : 0.0f", ("({0} > 0).float()",)),
)
_POSITIVE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("log", "logf({0})", ("torch.log({0})", "{0}.log()")),
    ("log", "logf(fmaxf({0}, 1e-06f))", ("torch.log({0}.clamp(min=1e-6))",)),
    ("log", "logf({0} + 1e-08f)", ("torch.log({0} + 1e-8)",)),
    ("sqrt", "sqrtf({0})", ("torch.sqrt({0})", "{0}.sqrt()")),
    ("rsqrt", "rsqrtf({0} + 1e-05f)", ("torch.rsqrt({0} + 1e-5)",)),
    ("rsqrt", "rsqrtf({0})", ("torch.rsqrt({0})", "{0}.rsqrt()")),
    ("reciprocal", "1.0f / {0}", ("1.0 / {0}", "torch.reciprocal({0})", "1 / {0}")),
    ("pow", "powf({0}, 0.75f)", ("{0} ** 0.75", "torch.pow({0}, 0.75)")),
)
_TRIES = 30
_SHAPES = [
    "n",
    "nd",
    "nd",
    "nd",
    "td",
    "ntd",
    "ntd",
    "ntd",
    "nct",
    "nts",
    "ntt",
    "nchw",
    "nchw",
    "nktd",
    "nktt",
    "nkts",
    "nthw",
]
"""Axes of the tensor that a graph begins with; some more often than others."""
_ALIKE = 0.2
"""How often a length is, where it is shown, another axis's too."""
_SIZES = {
    "n": ((4, 3, 2, 5, 2), (2, 4, 8, 16, 32, 64, 128, 512)),
    "t": ((12, 20, 4, 132, 4), (50, 96, 100, 128, 200, 256, 336, 512, 1024)),
    "s": ((16, 9, 6, 77, 6), (18, 64, 77, 128, 321)),
    "d": ((48, 72, 24, 264, 24), (64, 72, 80, 128, 200, 256, 320, 384, 512, 768)),
    "k": ((3, 4, 2, 6, 2), (4, 8, 12, 16)),
    "c": ((24, 12, 8, 60, 8), (16, 32, 64, 96, 128, 192)),
    "h": ((8, 12, 4, 20, 4), (14, 24, 28, 32, 56, 64)),
    "w": ((12, 8, 6, 36, 6), (16, 24, 28, 32, 56, 64)),
}
"""By name: of the emulator's three cases and a GPU's last two; of the GPU's first one."""
_NUMBERS = (0.5, 2.0, 0.1, 1.5, 3.0, 0.25, 0.7, 1.4142135623730951, 0.044715, 1e-5, 10.0, 0.125)


def draw_single(number: int) -> Graph | None:
    """The graph of that number; None where nothing came of it."""
    rng = random.Random(f"single {number}")
    kinds, weights = zip(*_MIDDLES, strict=True)
    middle = rng.choices(kinds, weights)[0]
    for _ in range(_TRIES):
        d = Draw.blank(rng)
        _start(d)
        before, after = rng.choice(((0, 0), (0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (1, 1), (3, 0)))
        if middle is chain:
            before, after = rng.choice((0, 1, 2, 3, 4)), 0
        elif middle not in _BEHIND_OTHERS:
            before = 0
        try:
            for step in (*[chain] * before, middle, *[chain] * after):
                d.h = step(d)
        except Dull:
            continue
        used = {id(n) for n in d.h.walk()}
        if all(id(g) in used for g in d.inputs):
            return d.graph(f"single_{number}")
    return None


def _start(d: Draw) -> None:
    """A tensor of one to four axes."""
    rng = d.rng
    dims = rng.choice(_SHAPES)
    d.images = dims.endswith("hw")
    for name in dict.fromkeys(dims):
        small, real = _SIZES[name]
        own = rng.choice(real)
        if d.sizes and rng.random() < _ALIKE:
            own = rng.choice([*d.sizes.values()]).values[3]
        d.size(name, name, (*small[:3], own, *small[3:]))
    axes = [Extent.of(name) for name in dims]
    if len(axes) > 2 and rng.random() < 0.1:
        axes[rng.randrange(len(axes))] = ONE
    low = 0.1 if rng.random() < 0.12 else None
    d.h = d.x = _given(d, tuple(axes), low=low)


def _given(d: Draw, dims: tuple[Extent, ...], **more: object) -> Given:
    return d.input(dims, f"in{len(d.inputs)}", **more)


# --- elementwise ---------------------------------------------------------------------------------


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
    y: Node
    form = rng.random()
    if form < 0.45:
        y = _given(d, dims)
    elif form < 0.6 and is_channels(dims[-1]) and dims[-1].text.isalpha():
        start = d.pick("torch.ones({})", "torch.zeros({})", "torch.randn({}) * 0.1")
        y = d.parameter(dims[-1:], start, "weight", "bias", "scale", "gamma", "beta", "g")
    elif form < 0.68 and len(dims) == 4:
        y = _given(d, rng.choice(((dims[0], dims[1], ONE, ONE), (dims[1], ONE, ONE))))
    elif form < 0.72:
        y = _given(d, ())
    else:
        small = tuple(ONE if rng.random() < 0.45 else e for e in dims)
        if rng.random() < 0.3:
            small = small[1:]
        if not small or all(e.is_one for e in small):
            raise Dull
        y = _given(d, small)
    if isinstance(y, Given) and not y.python.startswith("self.") and rng.random() < 0.1:
        return _divided(d, replace_last(d, low=0.1))
    d.ops.append("input")
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
        ("{1} > 0.0f ? {0} : 0.0f", "{0}.masked_fill({1} <= 0, 0.0)"),
        ("{1} > 0.0f ? {0} : -1e9f", "{0}.masked_fill(~({1} > 0), -1e9)"),
        ("{1} > 0.0f ? {0} : 0.0f", "torch.where({1} > 0, {0}, torch.zeros_like({0}))"),
        ("{1} > 0.0f ? {0} : 0.0f", "{0} * ({1} > 0)"),
    )
    c, python = rng.choice((*forms, *forms[:6]))
    return d.each(c, python, d.h, y)


def replace_last(d: Draw, **more: float) -> Given:
    """The last input with another domain."""
    d.inputs[-1] = replace(d.inputs[-1], **more)  # type: ignore[arg-type]
    return d.inputs[-1]


def _divided(d: Draw, y: Given) -> Node:
    d.ops.append("input")
    return d.each("{0} / {1}", d.pick("{0} / {1}", "torch.div({0}, {1})"), d.h, y)


# --- loops ---------------------------------------------------------------------------------------


def _reduced(d: Draw) -> Node:
    """Along an axis, along two, or of all elements."""
    rng, rank = d.rng, len(d.h.dims)
    name = rng.choice(("sum", "sum", "sum", "mean", "mean", "max", "min", "norm"))
    if rank == 0:
        raise Dull
    form = rng.random()
    if (form < 0.2 or rank == 1) and name in ("sum", "mean", "max", "min"):
        d.heads += 1
        d.ops.append(name)
        return Head(
            dims=(), args=(d.h,), kind="reduce", name=name, axes=tuple(range(rank)),
            python=d.pick(f"{{0}}.{name}()", f"torch.{name}({{0}})"),
        )  # fmt: skip
    if rank < 2:
        raise Dull
    axes: tuple[int, ...] = (rng.choice((rank - 1, rank - 1, rng.randrange(rank))),)
    if rank > 2 and form < 0.4 and name in ("sum", "mean"):
        axes = rng.choice(((rank - 2, rank - 1), (0, rank - 1)))
    _told(d.h.dims[axes[-1]])
    kept = rng.random() < 0.4
    found = d.reduce(d.h, name, axes, keepdim=kept)
    if name in ("max", "min") and rng.random() < 0.6:
        tail = ", keepdim=True" if kept else ""
        found.python = d.pick(f"{{0}}.{name}(", f"torch.{name}({{0}}, ")
        found.python += f"dim={axes[0]}{tail})" + d.pick(".values", "[0]")
    return found


def _log_sum_exp(d: Draw) -> Node:
    rank = len(d.h.dims)
    if rank < 2:
        raise Dull
    axis = d.rng.choice((rank - 1, rank - 1, d.rng.randrange(rank)))
    most = d.reduce(d.h, "max", (axis,), keepdim=True)
    most.plan, most.python = most.python, PASSED
    gap = d.each("expf({0} - {1})", PASSED, d.h, most, plan="torch.exp({0} - {1})")
    total = d.reduce(gap, "sum", (axis,), keepdim=True)
    total.plan, total.python = total.python, PASSED
    said = "-1" if axis == rank - 1 else str(axis)
    d.ops.append("logsumexp")
    return d.each(
        "logf({0}) + {1}", f"torch.logsumexp({{0}}, dim={said}, keepdim=True)", total, most,
        plan="torch.log({0}) + {1}",
    )  # fmt: skip


def _soft(d: Draw) -> Node:
    rank = len(d.h.dims)
    if rank < 2:
        raise Dull
    axis = d.rng.choice((rank - 1, rank - 1, rank - 1, d.rng.randrange(rank)))
    _told(d.h.dims[axis])
    return d.softmax(d.h, axis, (), d.rng.choice(("softmax", "softmax", "log_softmax")))


def _linear(d: Draw) -> Node:
    inner = d.h.dims[-1] if d.h.dims else ONE
    if d.images or not is_channels(inner) or not inner.text.isalpha():
        raise Dull
    m = d.size("m", "m", (36, 24, 12, d.rng.choice((64, 256, 1024)), 156, 12))
    return d.linear(d.h, d.rng.choice((m, m, inner)))


def _product(d: Draw) -> Node:
    rank = len(d.h.dims)
    if rank < 2 or d.images:
        raise Dull
    m = d.size("m", "m", (20, 24, 12, d.rng.choice((64, 256)), 156, 12))
    y = _given(d, (*d.h.dims[:-2], d.h.dims[-1], m))
    d.ops.append("matmul")
    said = ["{0} @ {1}", "torch.matmul({0}, {1})"]
    if rank == 3:
        said.append("torch.bmm({0}, {1})")
    return d.product(d.h, y, *said)


def _plain_layer_norm(d: Draw) -> Node:
    """Without parameters, or with those of a layer."""
    rank, last = len(d.h.dims), d.h.dims[-1] if d.h.dims else ONE
    if rank < 2 or d.images or not is_channels(last) or not last.text.isalpha():
        raise Dull
    eps = d.rng.choice((1e-5, 1e-6, 1e-12))
    given: list[Given] = []
    python = f"F.layer_norm({{0}}, ({{0}}.size(-1),), eps={eps})"
    if d.rng.random() < 0.6:
        more = "" if eps == 1e-5 else f", eps={eps}"
        given = d.module(f"nn.LayerNorm({d.layer_extent(last)}{more})",
                         {"weight": (last,), "bias": (last,)}, "norm")  # fmt: skip
        python = f"{given[0].python}({{0}})"
    d.heads += 1
    d.ops.append("layer_norm")
    return Head(
        dims=d.h.dims, args=(d.h, *given), kind="row", name="layer_norm", axes=(rank - 1,),
        numbers={"eps": eps}, python=python,
    )  # fmt: skip


def _pooled_image(d: Draw) -> Node:
    if not d.images:
        raise Dull
    axes, said = d.rng.choice(
        (((2, 3), "1"), ((2, 3), "1"), ((2,), "(1, None)"), ((3,), "(None, 1)"))
    )
    _told(d.h.dims[axes[0]])
    found = d.reduce(d.h, "mean", axes, keepdim=True)
    found.python = f"F.adaptive_avg_pool2d({{0}}, {said})"
    return found


def _summed_up(d: Draw) -> Node:
    rank = len(d.h.dims)
    if rank < 2:
        raise Dull
    axis = d.rng.randrange(rank)
    d.heads += 1
    d.ops.append("cumsum")
    return Head(
        dims=d.h.dims, args=(d.h,), kind="scan", name="cumsum", axes=(axis,),
        python=d.pick(f"torch.cumsum({{0}}, dim={axis})", f"{{0}}.cumsum({axis})"),
    )  # fmt: skip


def _picked(d: Draw) -> Node:
    """The element of each row that an index names, or rows of a table."""
    rank = len(d.h.dims)
    if rank not in (2, 3) or not is_channels(d.h.dims[-1]):
        raise Dull
    d.heads += 1
    if d.rng.random() < 0.5:
        rows = d.size("rows", "rows", (20, 36, 8, 1000, 100, 8))
        d.inputs.clear()
        index = d.input(d.h.dims[:-1], "in0", dtype="int64", high=rows)
        (table,) = d.module(f"nn.Embedding(<rows>, {d.layer_extent(d.h.dims[-1])})",
                            {"weight": (rows, d.h.dims[-1])}, "embed")  # fmt: skip
        d.ops.append("embedding")
        return Head(dims=d.h.dims, args=(table, index), kind="pick", name="of_table",
                    python=f"{table.python}({{1}})")  # fmt: skip
    index = d.input(d.h.dims[:-1], f"in{len(d.inputs)}", dtype="int64", high=d.h.dims[-1])
    d.ops.append("gather")
    dims = (*d.h.dims[:-1], ONE)
    wide = View(dims=dims, args=(index,), python=PASSED, place=lambda p: [*p[:-1]])
    axis = "-1" if d.rng.random() < 0.6 else str(rank - 1)
    return Head(
        dims=dims, args=(d.h, wide), kind="pick", name="of_row",
        python=f"{{0}}.gather({axis}, {{1}}.unsqueeze(-1))",
    )  # fmt: skip


def _batch_norm(d: Draw) -> Node:
    """By the statistics that a layer has kept."""
    rank = len(d.h.dims)
    if rank not in (2, 3, 4) or (d.x.dims[1].text in "st" and rank > 2):
        raise Dull
    c = d.h.dims[1]
    shape = (c, *[ONE] * (rank - 2))
    named = d.pick("bn", "norm")
    mean = d.input((c,), f"{named}_running_mean")
    spread = d.input((c,), f"{named}_running_var", low=0.1)
    weight, bias = (d.input((c,), f"{named}_{one}") for one in ("weight", "bias"))
    wide = [
        View(dims=shape, args=(p,), python=PASSED, place=keep(0))
        for p in (mean, spread, weight, bias)
    ]
    d.ops.append("batch_norm")
    return d.each(
        "({0} - {1}) * rsqrtf({2} + 1e-05f) * {3} + {4}",
        "F.batch_norm({0}, {1}, {2}, weight={3}, bias={4})", d.h, *wide,
        plan="({0} - {1}) * torch.rsqrt({2} + 1e-05) * {3} + {4}",
    )  # fmt: skip


def _parametric(d: Draw) -> Node:
    """PReLU, by channel or with one number."""
    rank = len(d.h.dims)
    if rank < 2 or not is_channels(c := d.h.dims[1]):
        raise Dull
    one = d.rng.random() < 0.5
    weight = d.input((ONE,) if one else (c,), "act_weight")
    wide: Node = weight
    if not one and rank > 2:
        wide = View(dims=(c, *[ONE] * (rank - 2)), args=(weight,), python=PASSED, place=keep(0))
    d.ops.append("prelu")
    return d.each("{0} > 0.0f ? {0} : {1} * {0}", "F.prelu({0}, {1})", d.h, wide,
                  plan="F.prelu({0}, {1})")  # fmt: skip


def _convolved(d: Draw) -> Node:
    """Over a sequence or an image: of each channel or of all, with steps, wide or at the edges."""
    axes = 2 if d.images else 1
    if len(d.h.dims) != axes + 2 or d.h.dims[1].text != "c" or any(e.is_one for e in d.h.dims):
        raise Dull
    n, c, *lengths = d.h.dims
    side = d.rng.choice((1, 2, 3, 3, 3, 4, 5, 7))
    depthwise = d.rng.random() < 0.45 and side > 1
    out = c
    if not depthwise and d.rng.random() < 0.7:
        out = d.size("m", "m", (36, 24, 12, d.rng.choice((32, 64, 96, 256)), 156, 12))
    pad, stride, dilation = 0, 1, 1
    if side > 1 and d.rng.random() < 0.25 and all(d.divides(e, side) for e in lengths):
        stride = side
    elif side > 1:
        dilation = d.rng.choice((1, 1, 1, 2, 4))
        whole = dilation * (side - 1)
        pad = d.rng.choice((0, whole // 2, whole // 2, whole))
    steps = f", stride={stride}" if stride > 1 else ""
    steps += f", dilation={dilation}" if dilation > 1 else ""
    given = window_layer(d, c, out, side, axes, pad, ("conv",), depthwise=depthwise, steps=steps)
    less = Extent.number(2 * pad - dilation * (side - 1))
    made = [e / stride if stride > 1 else e + less for e in lengths]
    if any(min(d.values(e)) < 1 for e in made):
        raise Dull
    numbers = {"side": side, "depthwise": depthwise, "pad": pad, "stride": stride}
    return Head(
        dims=(n, out, *made), args=(d.h, *given), kind="convolution", name=f"conv{axes}d",
        numbers={**numbers, "dilation": dilation}, python=f"{given[0].python}({{0}})",
    )  # fmt: skip


def _crossed(d: Draw) -> Node:
    """The cross product of vectors."""
    dims = (*d.h.dims[:-1], Extent.number(3)) if len(d.h.dims) < 4 else ()
    if len(dims) < 2 or any(e.is_one for e in dims):
        raise Dull
    d.inputs.clear()
    x, y = (_given(d, dims) for _ in range(2))
    axis = len(dims) - 1
    later, last = (_placed(axis, f"(@ + {by}) % 3") for by in (1, 2))
    views = [
        View(dims=dims, args=(one,), python=PASSED, place=place)
        for one, place in ((x, later), (y, last), (x, last), (y, later))
    ]
    d.ops.append("cross")
    said = d.pick("torch.cross({0}, {1}, dim=-1)", "torch.linalg.cross({0}, {1})")
    return d.each("{0} * {1} - {2} * {3}", said, *views, plan=said)


def _cross_entropy(d: Draw) -> Node:
    """Of each row of logits and its label."""
    if len(d.h.dims) != 2 or any(e.is_one for e in d.h.dims) or not isinstance(d.h, Given):
        raise Dull
    logp = d.softmax(d.h, 1, (), "log_softmax")
    logp.plan, logp.python = logp.python, PASSED
    index = d.input(d.h.dims[:1], f"in{len(d.inputs)}", dtype="int64", high=d.h.dims[1])
    d.heads += 1
    d.ops.append("cross_entropy")
    picked = Head(
        dims=d.h.dims[:1], args=(logp, index), kind="pick", name="of_row", python=PASSED_BOTH,
        plan="{0}.gather(1, {1}[:, None])[:, 0]",
    )  # fmt: skip
    return d.each("-{0}", 'F.cross_entropy({0}, reduction="none")', picked, plan="-{0}")


# --- moves ---------------------------------------------------------------------------------------


def _moved(
    d: Draw, python: str, place: Callable[[Places], list[str]], dims: tuple[Extent, ...], op: str
) -> Node:
    d.ops.append(op)
    return View(dims=dims, args=(d.h,), python=python, place=place)


def _at(dims: tuple[Extent, ...], axis: int, extent: Extent) -> tuple[Extent, ...]:
    return tuple(extent if a == axis else e for a, e in enumerate(dims))


def _placed(axis: int, text: str) -> Callable[[Places], list[str]]:
    """The coordinate of an axis as `text` says, where @ is its own."""
    return lambda p: [*p[:axis], text.replace("@", p[axis]), *p[axis + 1 :]]


def _told(extent: Extent) -> str:
    """Its text, where it is more than one."""
    if extent.is_one:
        raise Dull
    return extent.text


def _rolled(d: Draw) -> Node:
    rank = len(d.h.dims)
    axis = d.rng.randrange(rank)
    length = _told(d.h.dims[axis])
    by = d.rng.choice((1, -1, 2))
    start = f"@ + {length} - {by}" if by > 0 else f"@ + {-by}"
    said = "-1" if axis == rank - 1 and d.rng.random() < 0.5 else str(axis)
    python = d.pick(
        f"torch.roll({{0}}, {by}, {said})", f"torch.roll({{0}}, shifts={by}, dims={said})",
        f"{{0}}.roll({by}, {said})",
    )  # fmt: skip
    return _moved(d, python, _placed(axis, f"({start}) % {length}"), d.h.dims, "roll")


def _flipped(d: Draw) -> Node:
    axis = d.rng.randrange(len(d.h.dims))
    text = f"{_told(d.h.dims[axis])} - 1 - @"
    return _moved(d, f"torch.flip({{0}}, ({axis},))", _placed(axis, text), d.h.dims, "flip")


def _repeated(d: Draw) -> Node:
    rank = len(d.h.dims)
    axis, count = d.rng.randrange(rank), d.rng.choice((2, 3, 4))
    dims = _at(d.h.dims, axis, d.h.dims[axis] * count)
    single = d.h.dims[axis].is_one
    if single and d.rng.random() < 0.6 and len(d.inputs) == 1:  # as often as another is long
        other = _given(d, (d.h.dims[0], m := d.size("m", "m", (16, 9, 6, 200, 77, 6))))
        times = ", ".join("{1}.size(1)" if a == axis else "1" for a in range(rank))
        d.ops.append("repeat")
        return View(
            dims=_at(d.h.dims, axis, m), args=(d.h, other), python=f"{{0}}.repeat({times})",
            place=lambda p: [*p[:axis], "0", *p[axis + 1 :]],
        )  # fmt: skip
    if d.rng.random() < 0.5:
        times = ", ".join(str(count) if a == axis else "1" for a in range(rank))
        text = "0" if single else f"@ % {d.h.dims[axis].text}"
        return _moved(d, f"{{0}}.repeat({times})", _placed(axis, text), dims, "repeat")
    python = d.pick(
        f"{{0}}.repeat_interleave({count}, dim={axis})",
        f"torch.repeat_interleave({{0}}, {count}, dim={axis})",
    )
    return _moved(d, python, _placed(axis, "0" if single else f"@ / {count}"), dims,
                  "repeat_interleave")  # fmt: skip


def _padded(d: Draw) -> Node:
    """Zeros before or after an axis, or both; or less of it and zeros, as a shift."""
    rank = len(d.h.dims)
    axis = d.rng.choice((rank - 1, max(0, rank - 2)))
    before, after = d.rng.choice(((1, 0), (0, 1), (1, 1), (2, 2), (3, 0), (1, -1)))
    own = d.h
    if after < 0:
        less = d.h.dims[axis] + Extent.number(after)
        own = View(dims=_at(d.h.dims, axis, less), args=(d.h,), python=PASSED, place=list)
    args: list[Node] = []
    if before:
        args.append(_zeros(_at(own.dims, axis, Extent.number(before))))
    args.append(own)
    if after > 0:
        args.append(_zeros(_at(own.dims, axis, Extent.number(after))))
    pads = ", ".join(["0, 0"] * (rank - 1 - axis) + [f"{before}, {after}"])
    total = own.dims[axis] + Extent.number(before + max(0, after))
    d.ops.append("pad")
    return Joined(
        dims=_at(d.h.dims, axis, total), args=tuple(args), axis=axis,
        python=f"F.pad({{{int(before > 0)}}}, ({pads}))",
    )  # fmt: skip


def _zeros(dims: tuple[Extent, ...]) -> Node:
    return Each(dims=dims, python="0.0", c="0.0f")


def _gated(d: Draw) -> Node:
    rank = len(d.h.dims)
    axis = d.rng.choice((rank - 1, min(1, rank - 1)))
    if not d.divides(d.h.dims[axis], 2) or rank < 2:
        raise Dull
    half = d.h.dims[axis] / 2
    dims = _at(d.h.dims, axis, half)
    a = View(dims=dims, args=(d.h,), python=PASSED, place=list)
    b = View(dims=dims, args=(d.h,), python=PASSED, place=_placed(axis, f"@ + {half.text}"))
    said = "-1" if axis == rank - 1 else str(axis)
    d.ops.append("glu")
    return d.each("{0} * sigmoid({1})", f"F.glu({{0}}, dim={said})", a, b,
                  plan=f"F.glu({{0}}, dim={said})")  # fmt: skip


def _shuffled(d: Draw) -> Node:
    """Channels to places, or places to channels."""
    if not d.images:
        raise Dull
    n, c, h, w = d.h.dims
    if d.rng.random() < 0.5:
        if not d.divides(c, 4):
            raise Dull
        return _moved(
            d, "F.pixel_shuffle({0}, 2)",
            lambda p: [p[0], f"({p[1]} * 2 + {p[2]} % 2) * 2 + {p[3]} % 2", f"{p[2]} / 2",
                       f"{p[3]} / 2"],
            (n, c / 4, h * 2, w * 2), "pixel_shuffle",
        )  # fmt: skip
    if not (d.divides(h, 2) and d.divides(w, 2)):
        raise Dull
    return _moved(
        d, "F.pixel_unshuffle({0}, 2)",
        lambda p: [p[0], f"{p[1]} / 4", f"{p[2]} * 2 + {p[1]} / 2 % 2", f"{p[3]} * 2 + {p[1]} % 2"],
        (n, c * 4, h / 2, w / 2), "pixel_unshuffle",
    )  # fmt: skip


def _enlarged(d: Draw) -> Node:
    if not d.images:
        raise Dull
    n, c, h, w = d.h.dims
    by = d.rng.choice((2, 4))
    return _moved(
        d, f'F.interpolate({{0}}, scale_factor={by}, mode="nearest")',
        lambda p: [p[0], p[1], f"{p[2]} / {by}", f"{p[3]} / {by}"], (n, c, h * by, w * by),
        "interpolate",
    )  # fmt: skip


# --- masks, places, classes ----------------------------------------------------------------------


def _by_lengths(d: Draw) -> Node:
    """What lies behind the length of each row."""
    rank = len(d.h.dims)
    axis = d.rng.choice((1, rank - 1)) if rank > 1 else 0
    if rank < 2 or d.h.dims[axis].text not in ("t", "s"):
        raise Dull
    y = d.input(d.h.dims[:1], f"in{len(d.inputs)}", dtype="int64", high=d.h.dims[axis])
    wide = View(dims=(d.h.dims[0], *[ONE] * (rank - 1)), args=(y,), python=PASSED, place=keep(0))
    own = ", ".join(":" if a == axis else "None" for a in range(rank))
    mask = f"torch.arange({{0}}.size({axis}))[{own}] < {{1}}[:{', None' * (rank - 1)}]"
    low, said = d.rng.choice((("0.0f", "0.0"), ("-1e9f", "-1e9"), ("-INFINITY", 'float("-inf")')))
    d.ops.append("masked_fill")
    form = d.rng.randrange(3)
    if form == 0:
        c = f"{{i{axis}}} < {{1}} ? {{0}} : {low}"
        return d.each(c, f"{{0}}.masked_fill(~({mask}), {said})", d.h, wide)
    if form == 1:
        return d.each(f"{{i{axis}}} < {{1}} ? {{0}} : 0.0f", f"{{0}} * ({mask}).float()", d.h, wide)
    return d.each(f"{{i{axis}}} < {{1}} ? {{0}} : 0.0f",
                  f"torch.where({mask}, {{0}}, torch.zeros_like({{0}}))", d.h, wide)  # fmt: skip


def _mask_of_lengths(d: Draw) -> Node:
    """Alone: which places lie before the length of each row."""
    if len(d.h.dims) < 2 or any(e.is_one for e in d.h.dims[:2]) or not isinstance(d.h, Given):
        raise Dull
    if d.h.low is not None or len(d.inputs) > 1:
        raise Dull
    n, t = d.h.dims[:2]
    rest = len(d.h.dims) - 2
    y = d.input((n,), "in1", dtype="int64", high=t)
    wide = View(dims=(n, ONE), args=(y,), python=PASSED, place=keep(0))
    shape = View(dims=(n, t), args=(d.h,), python=PASSED, place=lambda p: [*p, *["0"] * rest])
    d.ops.append("mask")
    places = d.pick("torch.arange({1}.size(1))[None, :]", "torch.arange({1}.size(1)).unsqueeze(0)",
                    "torch.arange({1}.size(1))")  # fmt: skip
    lengths = d.pick("{0}[:, None]", "{0}.unsqueeze(1)", "{0}.unsqueeze(-1)")
    said = d.pick("({}).float()", "({}).to(torch.float32)").format(f"{places} < {lengths}")
    return d.each("{i1} < {0} ? 1.0f : 0.0f", said, wide, shape)


def _indexed(d: Draw) -> Node:
    """Rows of a tensor that an index names."""
    if len(d.h.dims) not in (1, 2) or any(e.is_one for e in d.h.dims) or d.inputs[1:]:
        raise Dull
    m = d.size("m", "m", (16, 9, 6, d.rng.choice((200, 2048)), 77, 6))
    index = d.input((m,), "in1", dtype="int64", high=d.h.dims[0])
    d.heads += 1
    d.ops.append("index")
    return Head(
        dims=(m, *d.h.dims[1:]), args=(d.h, index), kind="pick", name="of_table",
        python=d.pick("{0}[{1}]", "{0}[{1}]", "torch.index_select({0}, 0, {1})"),
    )  # fmt: skip


def _of_integers(d: Draw) -> Node:
    """A tensor of whole numbers as floats, and what follows."""
    d.inputs.clear()
    y = d.input(d.x.dims, "in0", dtype="int64", high=Extent.number(d.rng.choice((2, 10, 100))))
    d.ops.append("float")
    said = d.pick("{0}.float()", "{0}.to(torch.float32)")
    cast = d.each("(float){0}", said, y)
    d.h = cast
    return _with_number(d) if d.rng.random() < 0.6 else cast


def _of_squares(d: Draw) -> Node:
    """The diagonal, or a triangle, of the last two axes."""
    rank = len(d.h.dims)
    if rank < 2 or d.h.dims[-1].text != d.h.dims[-2].text:
        raise Dull
    i, j = f"{{i{rank - 2}}}", f"{{i{rank - 1}}}"
    low, said = d.rng.choice((("0.0f", "0.0"), ("-1e9f", "-1e9"), ("-INFINITY", 'float("-inf")')))
    size = "{0}.size(-1)"
    eye, past = f"torch.eye({size})", f"torch.ones({size}, {size})"
    same = f"{i} == {j} ? {low} : {{0}}"
    c, python = d.rng.choice((
        (same, f"{{0}}.masked_fill({eye}.bool(), {said})"),
        (same.replace(low, "0.0f"), f"{{0}} * (1 - {eye})"),
        (same, f"{{0}}.masked_fill(torch.eye({size}, dtype=torch.bool), {said})"),
        (f"{j} > {i} ? {low} : {{0}}", f"{{0}}.masked_fill({past}.tril() == 0, {said})"),
        (f"{j} > {i} ? {low} : {{0}}", f"{{0}}.masked_fill({past}.triu(1).bool(), {said})"),
        (f"{j} > {i} ? {low} : {{0}}",
         f"{{0}}.masked_fill(~torch.ones({size}, {size}, dtype=torch.bool).tril(), {said})"),
        (f"{j} > {i} ? 0.0f : {{0}}", "torch.tril({0})"),
        (f"{j} < {i} ? 0.0f : {{0}}", "torch.triu({0})"),
        (f"{j} > {i} ? {{0}} : 0.0f", "torch.triu({0}, diagonal=1)"),
        (f"{j} > {i} ? {{0}} : 0.0f", "{0}.triu(1)"),
    ))  # fmt: skip
    d.ops.append("masked_fill")
    found = d.each(c, python, d.h)
    return d.softmax(found, rank - 1) if "INF" not in c or d.rng.random() < 0.6 else found


def _by_place(d: Draw) -> Node:
    """A number, an angle or a distance of its place."""
    rank = len(d.h.dims)
    axis = d.rng.randrange(1, rank) if rank > 1 else 0
    place, told = f"{{i{axis}}}", f"torch.arange({{0}}.size({axis}))"
    tail = "[:" + ", None" * (rank - 1 - axis) + "]" if axis < rank - 1 else ""
    d.ops.append("place")
    if rank > 1 and axis < rank - 1 and d.h.dims[-1].text == "d" and d.rng.random() < 0.6:
        c = "d"
        even = "torch.arange(0, {0}.size(-1), 2).float() / {0}.size(-1)"
        angle = f"torch.outer({told}.float(), 1.0 / (10000.0 ** ({even})))"
        name = d.pick("cos", "sin")
        turn = f"{name}f({place} * powf(10000.0f, -2.0f * ({{i{rank - 1}}} % ({c} / 2)) / {c}))"
        if axis != rank - 2:
            raise Dull
        return d.each(f"{{0}} * {turn}",
                      f"{{0}} * torch.cat(({angle}, {angle}), dim=-1).{name}()", d.h)  # fmt: skip
    c, python = d.rng.choice((
        (f"{{0}} + {place}", f"{{0}} + {told}{tail}"),
        (f"{{0}} * {place}", f"{{0}} * {told}{tail}"),
        (f"{{0}} / ({place} + 1)", f"{{0}} / ({told} + 1){tail}"),
        (f"{place} % 2 > 0 ? 0.0f : {{0}}", f"{{0}}.masked_fill(({told} % 2 == 1){tail}, 0.0)"),
    ))  # fmt: skip
    return d.each(c, python, d.h)


def _one_hot(d: Draw) -> Node:
    count = d.rng.choice((3, 5, 10, 21))
    dims = d.x.dims[:-1]
    if not dims:
        raise Dull
    d.inputs.clear()
    y = d.input(dims, "in0", dtype="int64", high=Extent.number(count))
    wide = View(dims=(*dims, ONE), args=(y,), python=PASSED, place=lambda p: [*p[:-1]])
    rank = len(dims)
    d.ops.append("one_hot")
    return Each(
        dims=(*dims, Extent.number(count)), args=(wide,),
        c=f"{{0}} == {{i{rank}}} ? 1.0f : 0.0f",
        python=f"F.one_hot({{0}}, {count}).float()",
        plan=f"F.one_hot({{0}}, {count}).float()",
    )  # fmt: skip


def _pairwise_loss(d: Draw) -> Node:
    """Of each element and its target."""
    y = _given(d, d.h.dims)
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
        y = replace_last(d, low=0.1)
    return d.each(c, python, d.h, y)


_MIDDLES: tuple[tuple[Callable[[Draw], Node], int], ...] = (
    (chain, 34),
    (_reduced, 14),
    (_log_sum_exp, 2),
    (_soft, 6),
    (_linear, 16),
    (_product, 6),
    (_plain_layer_norm, 4),
    (_pooled_image, 3),
    (_summed_up, 2),
    (_picked, 6),
    (_batch_norm, 6),
    (_convolved, 9),
    (_crossed, 2),
    (_cross_entropy, 3),
    (_parametric, 3),
    (_rolled, 3),
    (_flipped, 2),
    (_repeated, 5),
    (_padded, 4),
    (_gated, 3),
    (_shuffled, 4),
    (_enlarged, 2),
    (_by_lengths, 7),
    (_mask_of_lengths, 4),
    (_indexed, 4),
    (_of_integers, 3),
    (_of_squares, 12),
    (_by_place, 5),
    (_one_hot, 3),
    (_pairwise_loss, 4),
)
"""What stands in the middle, and how often it is drawn."""
_BEHIND_OTHERS = (_reduced, _log_sum_exp, _soft, _summed_up)
"""Those that are in one part with elementwise operations before them."""
