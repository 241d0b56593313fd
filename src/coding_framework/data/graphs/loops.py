"""Idioms that loop: layers, statistics, softmax, scores, running sums, rows of a table."""

from __future__ import annotations

from coding_framework.data.graphs.draw import Draw, Dull, is_channels, same
from coding_framework.data.graphs.elementwise import MODULES, SMOOTH, act, c_of
from coding_framework.data.graphs.nodes import ONE, PASSED, Extent, Given, Head, Layer, Node

PAST_ALONE = (
    '{0}.masked_fill(torch.ones_like({0}).triu(1).bool(), float("-inf"))',
    '{0}.masked_fill(torch.tril(torch.ones_like({0})) == 0, float("-inf"))',
)
"""Scores of which each place sees those before it and itself."""


def norm_by(d: Draw) -> Node:
    """A statistic along an axis, and the tensor by it."""
    rank = len(d.h.dims)
    if rank < 2:
        raise Dull
    axis = d.rng.choice((1, rank - 1, rank - 1))
    axes = (2, 3) if d.images and rank == 4 and d.rng.random() < 0.6 else (axis,)
    form = d.rng.randrange(5)
    if form == 0:
        mean = d.reduce(d.h, "mean", axes, keepdim=True, names=("mean", "mu", "avg"))
        return d.each("{0} - {1}", "{0} - {1}", d.h, mean)
    if form == 1:
        top = d.reduce(
            act(d, d.h, "abs"), "max", axes, keepdim=True, names=("peak", "scale", "amax")
        )
        return d.each("{0} / ({1} + 1e-05f)", "{0} / ({1} + 1e-5)", d.h, top)
    if form == 2:
        total = d.reduce(d.h, "norm", axes[:1], keepdim=True, names=("norm", "length"))
        return d.each("{0} / fmaxf({1}, 1e-06f)", "{0} / {1}.clamp(min=1e-6)", d.h, total)
    if form == 3:
        eps = d.rng.choice((1e-5, 1e-6))
        said = d.constant("eps", eps)
        power = d.reduce(
            act(d, d.h, "square"), "mean", axes, keepdim=True, names=("ms", "power", "var")
        )
        return d.each(
            f"{{0}} * rsqrtf({{1}} + {eps!r}f)", f"{{0}} * torch.rsqrt({{1}} + {said})", d.h, power
        )
    squeeze = d.reduce(d.h, "mean", axes, keepdim=True, names=("pooled", "summary"))
    return d.each("{0} * {1}", "{0} * {1}", d.h, act(d, squeeze, "sigmoid", ("gate", "attn")))


def layer_norm(d: Draw) -> Node:
    if d.images or d.heads > 4 or not is_channels(d.h.dims[-1]):
        raise Dull
    dim = d.h.dims[-1]
    d.heads += 1
    rank = len(d.h.dims)
    if d.rng.random() < 0.6:
        given = d.module(
            f"nn.LayerNorm({d.layer_extent(dim)})",
            {"weight": (dim,), "bias": (dim,)},
            *d.rng.sample(("norm", "ln", "layer_norm", "norm1", "pre_norm"), 5),
        )
        d.ops.append("layer_norm")
        return Head(
            dims=d.h.dims,
            args=(d.h, *given),
            kind="row",
            name="layer_norm",
            axes=(rank - 1,),
            numbers={"eps": 1e-5},
            python=f"{given[0].python}({{0}})",
        )
    d.ops.append("normalize")
    return Head(
        dims=d.h.dims,
        args=(d.h,),
        kind="row",
        name="unit",
        axes=(rank - 1,),
        python="F.normalize({0}, dim=-1)",
    )


def soft(d: Draw) -> Node:
    if len(d.h.dims) < 2:
        raise Dull
    axis = d.rng.choice((len(d.h.dims) - 1, len(d.h.dims) - 1, 1))
    if d.h.dims[axis].is_one:
        raise Dull
    value = d.rng.choice((0.1, 0.5, 2.0))
    said = d.constant("temperature", value)
    x = d.each(f"{{0}} / {value}f", f"{{0}} / {said}", d.h) if d.rng.random() < 0.5 else d.h
    found = d.softmax(x, axis, ("weights", "attn", "probs"))
    if same(found, d.h) and d.rng.random() < 0.6:
        return d.each("{0} * {1}", "{0} * {1}", found, d.h)
    return found


def layer(d: Draw) -> Node:
    """A linear layer, mostly with a function after it."""
    if d.images or d.heads > 3 or not is_channels(d.h.dims[-1]):
        raise Dull
    out = d.h.dims[-1]
    if d.rng.random() < 0.6:
        python = d.pick("hidden_dim", "hidden", "out_features", "inner_dim", "mlp_dim")
        out = (
            Extent.of("m")
            if "m" in d.sizes
            else d.size("m", python, (36, 24, 12, d.rng.choice((192, 384, 1536)), 156, 12))
        )
        if d.rng.random() < 0.25:
            out = out * 2
    found: Node = d.linear(d.h, out)
    return act(d, found, d.rng.choice(SMOOTH)) if d.rng.random() < 0.55 else found


def perceptron(d: Draw) -> Node:
    """Two linear layers and a function between them, as one attribute."""
    if d.images or d.heads > 2 or not is_channels(d.h.dims[-1]):
        raise Dull
    outer = d.h.dims[-1]
    inner = outer * d.rng.choice((2, 4)) if d.rng.random() < 0.6 else outer / 2
    name = d.attribute("net", "mlp", "ffn", "layers", "block")
    function = d.rng.choice(tuple(MODULES))
    bias = d.rng.random() < 0.8
    off = "" if bias else ", bias=False"
    a, b = d.layer_extent(outer), d.layer_extent(inner)
    said = (f"nn.Linear({a}, {b}{off})", MODULES[function], f"nn.Linear({b}, {a}{off})")
    found: list[tuple[Given, ...]] = []
    for place, (out, into) in ((0, (inner, outer)), (2, (outer, inner))):
        members = {"weight": (out, into), **({"bias": (out,)} if bias else {})}
        found.append(
            tuple(
                Given(dims=dims, python=f"self.{name}", c_name=f"{name}_{place}_{member}")
                for member, dims in members.items()
            )
        )
    lines = "".join(f"    {one},\n" for one in said)
    text = (
        f"nn.Sequential(\n{lines})" if d.rng.random() < 0.7 else f"nn.Sequential({', '.join(said)})"
    )
    d.layers.append(Layer(name, text, (*found[0], *found[1])))
    d.ops += ["linear", function, "linear"]
    d.heads += 2
    first = Head(
        dims=(*d.h.dims[:-1], inner),
        args=(d.h, *found[0]),
        kind="linear",
        name="linear",
        python=PASSED,
        plan=f"self.{name}[0]({{0}})",
    )
    between = d.each(c_of(function), PASSED, first, plan=f"self.{name}[1]({{0}})")
    return Head(
        dims=d.h.dims,
        args=(between, *found[1]),
        kind="linear",
        name="linear",
        python=f"self.{name}({{0}})",
        plan=f"self.{name}[2]({{0}})",
    )


def two_layers(d: Draw) -> Node:
    """Two of a tensor, one of which gates the other."""
    if d.images or d.heads > 2 or not is_channels(d.h.dims[-1]):
        raise Dull
    out = d.h.dims[-1]
    a = d.linear(d.h, out, "value_proj", "w1", "up", "in_proj")
    b = d.linear(d.h, out, "gate_proj", "w2", "gate_fc", "to_gate")
    return d.each(
        "{0} * {1}", "{0} * {1}", a, act(d, b, d.rng.choice(("sigmoid", "silu", "tanh", "gelu")))
    )


def residual(d: Draw) -> Node:
    if d.h is d.x or not same(d.h, d.x):
        raise Dull
    d.ops.append("residual")
    form = d.rng.randrange(3)
    if form == 0:
        return d.each("{0} + {1}", d.pick("{0} + {1}", "{1} + {0}"), d.x, d.h)
    if form == 1:
        return d.each("{0} * {1}", "{0} * {1}", d.x, d.h)
    return d.each("{0} - {1}", "{0} - {1}", d.x, d.h)


def pooled(d: Draw) -> Node:
    """A weighted mean over the places."""
    if len(d.h.dims) != 3 or d.images or d.heads > 2 or not is_channels(d.h.dims[2]):
        raise Dull
    score = d.linear(d.h, ONE, "score", "attn_fc", "query_fc")
    weights = d.softmax(score, 1, ("weights", "alpha", "attn"))
    d.ops.append("pool")
    both = d.each("{0} * {1}", "{0} * {1}", weights, d.h)
    return d.reduce(both, "sum", (1,))


def scores(d: Draw) -> Node:
    """Products of all pairs of places, and what they say of the values."""
    if len(d.h.dims) != 3 or d.images or d.heads > 2 or d.h.dims[1].text != "t":
        raise Dull
    n, t, c = d.h.dims
    if d.rng.random() < 0.5 and len(d.inputs) < 3:
        key: Node = d.input((n, t, c), "keys", "memory", "y")
    else:
        key = d.h
    d.ops.append("scores")
    product: Node = d.product(
        d.h,
        key,
        "{0} @ {1}.transpose(-2, -1)",
        "torch.matmul({0}, {1}.transpose(1, 2))",
        "torch.bmm({0}, {1}.transpose(1, 2))",
        "{0} @ {1}.mT",
        'torch.einsum("btd,bsd->bts", {0}, {1})',
        transposed=True,
        names=("scores", "sim", "logits"),
    )
    scale = d.rng.choice((0.125, 0.1, 0.05))
    product = d.each(f"{{0}} * {scale}f", f"{{0}} * {d.constant('scale', scale)}", product)
    form = d.rng.randrange(5)
    if form == 0:
        return act(d, product, d.rng.choice(("tanh", "sigmoid", "relu")))
    if form < 3:
        mask = d.rng.random() < 0.75
        product = d.each(
            "{i2} > {i1} ? -INFINITY : {0}" if mask else "{i2} < {i1} ? 0.0f : {0}",
            d.pick(*PAST_ALONE) if mask else "torch.triu({0})",
            product,
            names=("masked",),
        )
        if not mask:
            return product
    weights = d.softmax(product, 2, ("attn", "weights", "probs"))
    return d.product(
        weights,
        key,
        "{0} @ {1}",
        "torch.matmul({0}, {1})",
        "torch.bmm({0}, {1})",
        'torch.einsum("bts,bsd->btd", {0}, {1})',
    )


def summed_up(d: Draw) -> Node:
    if len(d.h.dims) != 3 or d.images:
        raise Dull
    axis = d.rng.choice((1, 1, 2))
    d.heads += 1
    d.ops.append("cumsum")
    total: Node = Head(
        dims=d.h.dims,
        args=(d.h,),
        kind="scan",
        name="cumsum",
        axes=(axis,),
        python=f"torch.cumsum({{0}}, dim={axis})",
    )
    if d.rng.random() < 0.5:
        return d.each(
            f"{{0}} / ({{i{axis}}} + 1)",
            f"{{0}} / torch.arange(1, {{0}}.size({axis}) + 1, device={{0}}.device)"
            + (".view(1, -1, 1)" if axis == 1 else ""),
            total,
        )
    return total


def less(d: Draw) -> Node:
    """Without some axes."""
    rank = len(d.h.dims)
    if rank < 3:
        raise Dull
    axes = (2, 3) if rank == 4 and d.images else (d.rng.choice((1, rank - 1)),)
    if any(d.h.dims[a].is_one for a in axes):
        raise Dull
    if rank == 4:
        d.images = False
    return d.reduce(d.h, d.rng.choice(("mean", "mean", "max", "sum", "min")), axes)


def looked_up(d: Draw) -> Node:
    """Rows of a table, or the element of each row that an index names."""
    if d.images or len(d.inputs) > 3 or d.heads > 3 or len(d.h.dims) < 2:
        raise Dull
    rank = len(d.h.dims)
    dim = d.h.dims[-1]
    if not is_channels(dim):
        raise Dull
    if any(mark in dim.text for mark in "+-/"):
        raise Dull
    d.heads += 1
    if d.rng.random() < 0.6 and rank == 3 and d.h.dims[1].text == "t":
        v = d.size(
            "rows", d.pick("vocab_size", "num_embeddings", "num_classes"), (20, 36, 8, 1000, 100, 8)
        )
        index = d.input(d.h.dims[:2], "ids", "tokens", "index", "labels", dtype="int64", high=v)
        (table,) = d.module(
            f"nn.Embedding(<rows>, {d.layer_extent(dim)})",
            {"weight": (v, dim)},
            "embed",
            "embedding",
            "token_embed",
            "table",
        )
        d.ops.append("embedding")
        rows = Head(
            dims=d.h.dims,
            args=(table, index),
            kind="pick",
            name="of_table",
            python=f"{table.python}({{1}})",
            names=("emb", "e"),
        )
        return d.each("{0} + {1}", "{0} + {1}", d.h, rows)
    index = d.input(d.h.dims[:-1], "labels", "target", "index", "actions", dtype="int64", high=dim)
    d.ops.append("gather")
    return Head(
        dims=d.h.dims[:-1],
        args=(d.h, index),
        kind="pick",
        name="of_row",
        python="{0}.gather(-1, {1}.unsqueeze(-1)).squeeze(-1)",
        names=("picked", "chosen"),
    )


def convolved(d: Draw) -> Node:
    """A window over an image, of each channel or of all."""
    if not d.images or len(d.h.dims) != 4 or d.heads > 2:
        raise Dull
    n, c, h, w = d.h.dims
    if not is_channels(c):
        raise Dull
    side = d.rng.choice((1, 3, 3, 5))
    depthwise = d.rng.random() < 0.4 and side > 1
    if depthwise and {"conv", "linear"} & {*d.ops}:
        raise Dull
    out = c
    if not depthwise and d.rng.random() < 0.6:
        named = ("out_channels", "hidden_channels")
        out = d.size_once("m", named, (12, 24, 12, 96, 48, 12))
    names = ("conv", "conv1", "dw_conv" if depthwise else "project", "features")
    given = window_layer(d, c, out, side, 2, side // 2, names, depthwise=depthwise)
    found: Node = Head(
        dims=(n, out, h, w),
        args=(d.h, *given),
        kind="convolution",
        name="conv2d",
        numbers={"side": side, "depthwise": depthwise, "pad": side // 2},
        python=f"{given[0].python}({{0}})",
    )
    return act(d, found, d.rng.choice(SMOOTH)) if d.rng.random() < 0.6 else found


def window_layer(
    d: Draw,
    channels: Extent,
    out: Extent,
    side: int,
    axes: int,
    padding: int,
    names: tuple[str, ...],
    *,
    depthwise: bool,
    steps: str = "",
) -> list[Given]:
    """The weight and perhaps the bias of a convolution over so many axes, of each channel or of
    all. steps: its other arguments."""
    bias = d.rng.random() < 0.6
    more = (f", padding={padding}" if padding else "") + steps
    more += f", groups={d.layer_extent(channels)}" if depthwise else ""
    more += "" if bias else ", bias=False"
    weight = (out, ONE if depthwise else channels, *[Extent.number(side)] * axes)
    d.ops.append("depthwise_conv" if depthwise else "conv")
    d.heads += 1
    return d.module(
        f"nn.Conv{axes}d({d.layer_extent(channels)}, {d.layer_extent(out)}, {side}{more})",
        {"weight": weight, **({"bias": (out,)} if bias else {})},
        *d.rng.sample(names, len(names)),
    )
