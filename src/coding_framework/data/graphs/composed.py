"""Idioms of several steps that belong together: attention of several heads, cells, losses, norms
with a layer of their own, convolutions along a sequence.

Where PyTorch has one call for several nodes, the inner ones say `PASSED` and the last one the call.
"""

from __future__ import annotations

from coding_framework.data.graphs.draw import Draw, Dull, is_channels
from coding_framework.data.graphs.elementwise import SMOOTH, act, keep
from coding_framework.data.graphs.loops import PAST_ALONE, window_layer
from coding_framework.data.graphs.nodes import (
    ONE,
    PASSED,
    PASSED_BOTH,
    Extent,
    Head,
    Node,
    View,
)
from coding_framework.data.graphs.places import cat, corners, halves, pieces, turned


def _is_sequence(d: Draw) -> bool:
    """Whether the tensor in hand is (batch, places, channels)."""
    dims = d.h.dims
    return len(dims) == 3 and not d.images and dims[1].text == "t" and is_channels(dims[2])


def _is_product(extent: Extent) -> bool:
    """Whether it is neither a part nor a sum of sizes."""
    return "/" not in extent.text and "+" not in extent.text


def _of_positions(product: Node, causal: bool, d: Draw, python: str = "") -> Node:
    """Scores of which each place sees those before it."""
    if not causal:
        return product
    row, column = len(product.dims) - 2, len(product.dims) - 1
    return d.each(
        f"{{i{column}}} > {{i{row}}} ? -INFINITY : {{0}}",
        python
        or d.pick(
            *PAST_ALONE,
            "{0}.masked_fill(torch.triu(torch.ones({0}.size(-2), {0}.size(-1), device={0}.device,"
            ' dtype=torch.bool), diagonal=1), float("-inf"))',
        ),
        product,
        names=("masked", "scores"),
        plan=PAST_ALONE[0],
    )


def attention(d: Draw) -> Node:
    """Each head has a part of the channels."""
    if not _is_sequence(d) or d.heads > 1:
        raise Dull
    n, t, c = d.h.dims
    count = d.rng.choice((1, 2, 3, 4, 6))
    if not d.divides(c, count) or not _is_product(c):
        raise Dull
    form = d.rng.randrange(4)
    if form == 0:
        both = d.linear(d.h, c * 3, "qkv", "to_qkv", "in_proj", "c_attn")
        q, k, v = pieces(d, both, 3, 2, ("q", "k", "v"))
    elif form == 1:
        other: Node = d.h
        if d.rng.random() < 0.4 and len(d.inputs) < 3:
            other = d.input(d.h.dims, "memory", "context", "encoded")
        q = d.linear(d.h, c, "q_proj", "to_q", "wq", "query")
        k = d.linear(other, c, "k_proj", "to_k", "wk", "key")
        v = d.linear(other, c, "v_proj", "to_v", "wv", "value")
    elif form == 2 and len(d.inputs) < 2:
        q, k, v = d.h, d.input(d.h.dims, "k", "key"), d.input(d.h.dims, "v", "value")
    else:
        q = k = v = d.h
    d.ops.append("attention")
    if count > 1:
        part = c / count
        said = d.constant(d.pick("num_heads", "n_heads", "heads", "n_head"), count)
        python = d.pick(
            f"{{0}}.view({{0}}.size(0), {{0}}.size(1), {said}, -1).transpose(1, 2)",
            f"{{0}}.reshape({{0}}.size(0), {{0}}.size(1), {said}, -1).permute(0, 2, 1, 3)",
            f"{{0}}.unflatten(-1, ({said}, -1)).transpose(1, 2)",
        )
        if isinstance(q, View):
            python = python.replace(".view(", ".reshape(")
        made: dict[int, View] = {}
        for x in (q, k, v):
            if id(x) not in made:
                made[id(x)] = View(
                    dims=(n, Extent.number(count), t, part),
                    args=(x,),
                    python=python,
                    place=lambda p: [p[0], p[2], f"{p[1]} * {part.factor} + {p[3]}"],
                )
        q, k, v = (made[id(x)] for x in (q, k, v))
    inner = q.dims[-1]
    causal = d.rng.random() < 0.4
    whole = count > 1 and d.rng.random() < 0.3
    scale = f"rsqrtf((float){inner.factor})"
    by_size = d.pick(
        "{0} @ {1}.transpose(-2, -1) / {0}.size(-1) ** 0.5",
        "{0} @ {1}.transpose(-2, -1) * {0}.size(-1) ** -0.5",
        "torch.matmul({0}, {1}.transpose(-2, -1)) / {0}.shape[-1] ** 0.5",
        "({0} * {0}.size(-1) ** -0.5) @ {1}.transpose(-2, -1)",
    )
    product: Node = d.product(
        q,
        k,
        PASSED_BOTH if whole else by_size,
        transposed=True,
        names=() if whole else ("scores", "sim", "logits", "att"),
        plan="{0} @ {1}.transpose(-2, -1)",
    )
    root = f"({inner.text}) ** 0.5" if " " in inner.text else f"{inner.text} ** 0.5"
    product = d.each(f"{{0}} * {scale}", PASSED, product, plan=f"{{0}} / {root}")
    product = _of_positions(product, causal, d, PASSED if whole else "")
    weights = d.softmax(product, len(q.dims) - 1, ("attn", "weights", "probs"))
    if whole:
        weights.plan, weights.python, weights.names = weights.python, PASSED, ()
    tail = ", is_causal=True" if causal else ""
    call = f"F.scaled_dot_product_attention({{0}}, {{1}}{tail})"
    mixed: Node = d.product(
        weights,
        v,
        *((call,) if whole else ("{0} @ {1}", "torch.matmul({0}, {1})")),
        names=("mixed", "out", "context"),
        plan="{0} @ {1}",
    )
    if count > 1:
        mixed = View(
            dims=(n, t, c),
            args=(mixed,),
            python=d.pick(
                "{0}.transpose(1, 2).flatten(2)",
                "{0}.transpose(1, 2).reshape({0}.size(0), {0}.size(2), -1)",
                "{0}.permute(0, 2, 1, 3).flatten(2)",
                "{0}.transpose(1, 2).contiguous().view({0}.size(0), {0}.size(2), -1)",
            ),
            place=lambda p: [p[0], f"{p[2]} / {part.factor}", p[1], f"{p[2]} % {part.factor}"],
        )
    if form < 2 and d.rng.random() < 0.6:
        return d.linear(mixed, c, "out_proj", "to_out", "proj", "wo")
    return mixed


def linear_attention(d: Draw) -> Node:
    """Keys and values are multiplied first; or the channels attend to each other."""
    if not _is_sequence(d) or d.heads > 1 or len(d.inputs) > 2:
        raise Dull
    k: Node = d.input(d.h.dims, "k", "keys", "context")
    v = d.input(d.h.dims, "v", "values", "memory") if d.rng.random() < 0.5 else d.h
    d.ops.append("linear_attention")
    function = d.rng.choice(("relu", "sigmoid", "elu_1", "softmax"))
    q: Node = d.h
    if function == "softmax":
        k = d.softmax(k, 1, ("k_soft",))
    elif function == "elu_1":
        q, k = (d.each("{0} > 0.0f ? {0} + 1.0f : expf({0})", "F.elu({0}) + 1", x) for x in (q, k))
    else:
        q, k = act(d, q, function), act(d, k, function)
    state = d.product(
        turned(k), v, "{0} @ {1}", "torch.bmm({0}, {1})", names=("kv", "state", "context_mat")
    )
    return d.product(
        q, state, "{0} @ {1}", "torch.matmul({0}, {1})", 'torch.einsum("btd,bde->bte", {0}, {1})'
    )


def cell(d: Draw) -> Node:
    """A step of a recurrent layer."""
    if d.images or d.heads > 1 or len(d.inputs) > 1 or not is_channels(d.h.dims[-1]):
        raise Dull
    c = d.h.dims[-1]
    if "/" in c.text:
        raise Dull
    state = d.input(d.h.dims, "h", "hidden", "h_prev", "state")
    d.ops.append("cell")
    form = d.rng.randrange(4)
    axis = len(d.h.dims) - 1
    if form == 0:  # of an LSTM
        memory = d.input(d.h.dims, "c", "c_prev", "cell_state")
        a = d.linear(d.h, c * 4, "x2h", "w_ih", "input_map")
        b = d.linear(state, c * 4, "h2h", "w_hh", "hidden_map")
        total = d.each("{0} + {1}", "{0} + {1}", a, b, names=("gates", "z"))
        i, f, g, o = pieces(d, total, 4, axis, ("i", "f", "g", "o"))
        new: Node = d.each(
            "{0} * {1} + {2} * {3}",
            "{0} * {1} + {2} * {3}",
            act(d, f, "sigmoid"),
            memory,
            act(d, i, "sigmoid"),
            act(d, g, "tanh"),
            names=("c_new", "c_next"),
        )
        if d.rng.random() < 0.3:
            return new
        return d.each("{0} * {1}", "{0} * {1}", act(d, o, "sigmoid"), act(d, new, "tanh"))
    if form == 1:  # gated
        a = d.linear(d.h, c * 3, "x2h", "w_x", "input_proj")
        b = d.linear(state, c * 3, "h2h", "w_h", "hidden_proj")
        xr, xz, xn = pieces(d, a, 3, axis, ("xr", "xz", "xn"))
        hr, hz, hn = pieces(d, b, 3, axis, ("hr", "hz", "hn"))
        r = act(d, d.each("{0} + {1}", "{0} + {1}", xr, hr), "sigmoid", ("r", "reset"))
        z = act(d, d.each("{0} + {1}", "{0} + {1}", xz, hz), "sigmoid", ("z", "update"))
        new = act(d, d.each("{0} + {1} * {2}", "{0} + {1} * {2}", xn, r, hn), "tanh", ("cand", "n"))
        return d.each(
            "(1.0f - {0}) * {1} + {0} * {2}", "(1 - {0}) * {1} + {0} * {2}", z, new, state
        )
    if form == 2:  # of both beside each other
        both = cat(d, [d.h, state], axis)
        f = act(d, d.linear(both, c, "gate_fc", "forget", "f_gate"), "sigmoid", ("f", "gate"))
        new = act(d, d.linear(both, c, "cand_fc", "candidate", "update_fc"), "tanh", ("cand",))
        return d.each(
            "{0} * {1} + (1.0f - {0}) * {2}", "{0} * {1} + (1 - {0}) * {2}", f, state, new
        )
    a = d.linear(d.h, c, "w_in", "in_layer", "x_proj")
    b = d.linear(state, c, "w_rec", "rec_layer", "h_proj")
    return act(d, d.each("{0} + {1}", "{0} + {1}", a, b), d.rng.choice(("tanh", "relu", "sigmoid")))


def _statistics(d: Draw, x: Node, axes: tuple[int, ...]) -> tuple[Node, Node]:
    """(what is centred, its variance), of which the last node is to say the call."""
    mean = d.reduce(x, "mean", axes, keepdim=True)
    mean.plan, mean.python = mean.python, PASSED
    centred = d.each("{0} - {1}", PASSED, x, mean, plan="{0} - {1}")
    variance = _mean_square(d, centred, axes)
    variance.python = PASSED
    d.ops[-2:] = []
    return centred, variance


def _mean_square(d: Draw, x: Node, axes: tuple[int, ...], names: tuple[str, ...] = ()) -> Node:
    """Of which another node is to say the call."""
    square = d.each("square({0})", PASSED, x, plan="{0} ** 2")
    found = d.reduce(square, "mean", axes, keepdim=True, names=names)
    found.plan = found.python
    return found


def _spread(d: Draw, x: Node, axes: tuple[int, ...]) -> tuple[Node, Node]:
    """(what is centred, its variance), each with its own call."""
    said = "-1" if axes == (len(x.dims) - 1,) else str(axes[0]) if len(axes) == 1 else repr(axes)
    mean = d.reduce(x, "mean", axes, keepdim=True, names=("mean", "mu"))
    centred = d.each("{0} - {1}", "{0} - {1}", x, mean)
    gap = d.each("{0} - {1}", PASSED, x, mean, plan="{0} - {1}")
    variance = _mean_square(d, gap, axes, ("var", "variance"))
    variance.python = d.pick(
        f"{{0}}.var(dim={said}, keepdim=True, unbiased=False)",
        f"torch.var({{0}}, dim={said}, keepdim=True, unbiased=False)",
        f"{{0}}.var({said}, unbiased=False, keepdim=True)",
    )
    d.ops.append("var")
    return centred, variance


def standardized(d: Draw) -> Node:
    """Less its mean, by its spread."""
    rank = len(d.h.dims)
    if rank < 2 or d.heads > 3:
        raise Dull
    axes = (2, 3) if rank == 4 and d.rng.random() < 0.6 else (d.rng.choice((1, rank - 1)),)
    centred, variance = _spread(d, d.h, axes)
    form = d.rng.randrange(4)
    if form == 0:
        return d.each(
            "{0} / sqrtf({1} + 1e-05f)",
            d.pick("{0} / torch.sqrt({1} + 1e-5)", "{0} / ({1} + 1e-5).sqrt()"),
            centred,
            variance,
        )
    if form == 1:
        said = d.constant("eps", 1e-5)
        return d.each(
            "{0} * rsqrtf({1} + 1e-05f)", f"{{0}} * torch.rsqrt({{1}} + {said})", centred, variance
        )
    if form == 2:  # an energy of each place, which is a gate
        energy = d.each(
            "square({0}) / (4.0f * ({1} + 1e-4f)) + 0.5f",
            "{0}.pow(2) / (4 * ({1} + 1e-4)) + 0.5",
            centred,
            variance,
        )
        return d.each("{0} * {1}", "{0} * {1}", d.h, act(d, energy, "sigmoid"))
    return d.each("{0} / sqrtf({1} + 1e-05f)", "{0} / torch.sqrt({1} + 1e-5)", d.h, variance)


def norm_layer(d: Draw) -> Node:
    """A group norm or an instance norm of an image."""
    if not d.images or len(d.h.dims) != 4 or not is_channels(d.h.dims[1]) or d.heads > 3:
        raise Dull
    n, c, h, w = d.h.dims
    count = d.rng.choice((1, 2, 3, 4, 6))
    grouped = d.rng.random() < 0.65
    if not d.divides(c, count) or not _is_product(c):
        raise Dull
    d.heads += 1
    if not grouped:
        if min(a * b for a, b in zip(d.values(h), d.values(w), strict=True)) < 2:
            raise Dull
        d.ops.append("instance_norm")
        centred, variance = _statistics(d, d.h, (2, 3))
        name = d.attribute("norm", "inorm", "instance_norm")
        text = f"nn.InstanceNorm2d({d.layer_extent(c)})"
        d.module(text, {}, name)
        return d.each(
            "{0} * rsqrtf({1} + 1e-05f)",
            f"self.{name}({{0}})",
            centred,
            variance,
            plan="{0} * torch.rsqrt({1} + 1e-05)",
        )
    d.ops.append("group_norm")
    part = c / count
    wide = View(
        dims=(n, Extent.number(count), part, h, w),
        args=(d.h,),
        python=PASSED,
        plan=f"{{0}}.unflatten(1, ({count}, -1))",
        place=lambda p: [p[0], f"{p[1]} * {part.factor} + {p[2]}", p[3], p[4]],
    )
    centred, variance = _statistics(d, wide, (2, 3, 4))
    unit = d.each(
        "{0} * rsqrtf({1} + 1e-05f)",
        PASSED,
        centred,
        variance,
        plan="{0} * torch.rsqrt({1} + 1e-05)",
    )
    back = View(
        dims=d.h.dims,
        args=(unit,),
        python=PASSED,
        plan="{0}.flatten(1, 2)",
        place=lambda p: [p[0], f"{p[1]} / {part.factor}", f"{p[1]} % {part.factor}", p[2], p[3]],
    )
    weight, bias = d.module(
        f"nn.GroupNorm({count}, {d.layer_extent(c)})",
        {"weight": (c,), "bias": (c,)},
        "norm",
        "gn",
        "group_norm",
    )
    scale, shift = (
        View(dims=(c, ONE, ONE), args=(p,), python=PASSED, place=keep(0), plan="{0}[:, None, None]")
        for p in (weight, bias)
    )
    return d.each(
        "{0} * {1} + {2}",
        f"{weight.python}({{0}})",
        back,
        scale,
        shift,
        plan="{0} * {1} + {2}",
    )


def squeezed(d: Draw) -> Node:
    """Each channel by what two layers say of the means of all."""
    rank = len(d.h.dims)
    channel = d.h.dims[1] if d.images and rank == 4 else d.h.dims[-1]
    if rank < 3 or (d.images and rank != 4) or d.heads > 1 or not is_channels(channel):
        raise Dull
    if not d.divides(channel, 4) or not _is_product(channel):
        raise Dull
    axes = (2, 3) if d.images else (1,)
    mean = d.reduce(d.h, "mean", axes, names=("pooled", "squeezed", "s"))
    if d.images and d.rng.random() < 0.4:
        mean.python = d.pick(
            "F.adaptive_avg_pool2d({0}, 1).flatten(1)",
            "{0}.mean((2, 3))",
            "{0}.flatten(2).mean(-1)",
        )
    inner = d.linear(mean, channel / d.rng.choice((2, 4)), "fc1", "reduce", "down")
    inner2 = d.linear(
        act(d, inner, d.rng.choice(("relu", "silu", "gelu"))), channel, "fc2", "expand", "up"
    )
    gate = act(
        d, inner2, d.rng.choice(("sigmoid", "sigmoid", "hardsigmoid", "tanh")), ("gate", "w")
    )
    d.ops.append("excite")
    if d.images:
        python = d.pick(
            "{0}[:, :, None, None]",
            "{0}.unsqueeze(-1).unsqueeze(-1)",
            "{0}.view({0}.size(0), -1, 1, 1)",
        )
        wide = View(
            dims=(d.h.dims[0], channel, ONE, ONE), args=(gate,), python=python, place=keep(0, 1)
        )
    else:
        python = d.pick("{0}.unsqueeze(1)", "{0}[:, None, :]")
        wide = View(dims=(d.h.dims[0], ONE, channel), args=(gate,), python=python, place=keep(0, 2))
    return d.each("{0} * {1}", "{0} * {1}", d.h, wide)


def rotary(d: Draw) -> Node:
    """Pairs of channels are turned by an angle of each place."""
    if not _is_sequence(d) or not d.divides(d.h.dims[2], 2) or len(d.inputs) > 2:
        raise Dull
    _, t, c = d.h.dims
    if not _is_product(c):
        raise Dull
    a, b = halves(d, d.h, ("x1", "a", "re"), ("x2", "b", "im"))
    cos, sin = d.input((t, c / 2), "cos", "freqs_cos"), d.input((t, c / 2), "sin", "freqs_sin")
    d.ops.append("rotary")
    first = d.each("{0} * {1} - {2} * {3}", "{0} * {1} - {2} * {3}", a, cos, b, sin)
    second = d.each("{0} * {1} + {2} * {3}", "{0} * {1} + {2} * {3}", a, sin, b, cos)
    return cat(d, [first, second], 2)


def masked_mean(d: Draw) -> Node:
    """The mean of the places before each row's length, or those places alone."""
    if not _is_sequence(d) or len(d.inputs) > 2:
        raise Dull
    n, t, _ = d.h.dims
    lengths = d.input((n,), "lengths", "lens", "valid_len", dtype="int64", high=t)
    d.ops.append("lengths")
    wide = View(dims=(n, ONE, ONE), args=(lengths,), python="{0}[:, None, None]", place=keep(0))
    places = "torch.arange({0}.size(1), device={0}.device)"
    kept = d.each(
        "{i1} < (int){1} ? {0} : 0.0f",
        d.pick(
            "{0} * (" + places + "[None, :, None] < {1}).float()",
            "{0}.masked_fill(" + places + "[None, :, None] >= {1}, 0.0)",
            "torch.where(" + places + ".view(1, -1, 1) < {1}, {0}, torch.zeros_like({0}))",
        ),
        d.h,
        wide,
        names=("masked", "kept"),
    )
    if d.rng.random() < 0.4:
        return kept
    total = d.reduce(kept, "sum", (1,))
    count = View(dims=(n, ONE), args=(lengths,), python="{0}.unsqueeze(-1)", place=keep(0))
    return d.each("{0} / fmaxf((float){1}, 1.0f)", "{0} / {1}.clamp(min=1)", total, count)


def chosen_place(d: Draw) -> Node:
    """One place, some of them, or all of them moved."""
    if len(d.h.dims) != 3 or d.images or d.h.dims[1].text != "t":
        raise Dull
    n, _, c = d.h.dims
    form = d.rng.randrange(4)
    d.ops.append("place")
    if form < 2:
        python = ("{0}[:, -1]", "{0}[:, 0]")[form]
        at = ("t - 1", "0")[form]
        one = View(dims=(n, c), args=(d.h,), python=python, place=lambda p: [p[0], at, p[1]])
        if d.rng.random() < 0.5:
            return one
        wide = View(dims=(n, ONE, c), args=(one,), python="{0}.unsqueeze(1)", place=keep(0, 2))
        return d.each("{0} - {1}", "{0} - {1}", d.h, wide)
    by = d.rng.choice((1, 1, 2, 3))
    forward = d.rng.random() < 0.5
    rolled = View(
        dims=d.h.dims,
        args=(d.h,),
        python=f"torch.roll({{0}}, {by if forward else -by}, dims=1)",
        names=("rolled", "neighbour"),
        place=lambda p: [
            p[0],
            f"({p[1]} + {by}) % t" if not forward else f"({p[1]} + {by} * t - {by}) % t",
            p[2],
        ],
    )
    if form == 2:
        return d.each("{0} - {1}", "{0} - {1}", d.h, rolled)
    return d.each("0.5f * ({0} + {1})", "({0} + {1}) / 2", d.h, rolled)


def outer(d: Draw) -> Node:
    """Each element of a row times each of another one, and what comes of it."""
    if len(d.h.dims) != 2 or d.images or len(d.inputs) > 2 or not is_channels(d.h.dims[1]):
        raise Dull
    n, c = d.h.dims
    k = d.size_once("k", ("rank", "num_factors", "k_dim"), (20, 12, 8, 64, 100, 8))
    y = d.input((n, k), "y", "other", "factors")
    d.ops.append("outer")
    a = View(dims=(n, c, ONE), args=(d.h,), python="{0}.unsqueeze(-1)", place=keep(0, 1))
    b = View(dims=(n, ONE, k), args=(y,), python="{0}.unsqueeze(1)", place=keep(0, 2))
    form = d.rng.randrange(3)
    if form == 0:
        return d.each("{0} * {1}", "{0} * {1}", a, b)
    if form == 1:
        return act(d, d.each("{0} + {1}", "{0} + {1}", a, b), d.rng.choice(SMOOTH))
    return act(d, d.each("{0} - {1}", "{0} - {1}", a, b), d.rng.choice(("tanh", "gauss", "relu")))


def times_other(d: Draw) -> Node:
    """A product with another input, or of the tensor with itself."""
    if d.heads > 2 or len(d.h.dims) not in (2, 3) or d.images or len(d.inputs) > 2:
        raise Dull
    c = d.h.dims[-1]
    if not is_channels(c):
        raise Dull
    d.ops.append("product")
    if len(d.h.dims) == 3 and d.rng.random() < 0.4:
        other = turned(d.h, d.pick("{0}.transpose(1, 2)", "{0}.mT"))
        gram = d.product(other, d.h, "{0} @ {1}", "torch.bmm({0}, {1})", names=("gram", "cov"))
        return d.each("{0} * 0.01f", d.pick("{0} * 0.01", "{0} / 100"), gram)
    m = d.size_once("m", ("out_dim", "num_classes", "n_out"), (36, 24, 12, 192, 156, 12))
    batch = d.h.dims[:-2] if d.rng.random() < 0.5 else ()
    y = d.input((*batch, c, m), "w", "other", "matrix", "basis")
    said = ("{0} @ {1}", "torch.matmul({0}, {1})")
    if batch:
        return d.product(d.h, y, *said)
    by = View(dims=(m, c), args=(y,), python=PASSED, place=lambda p: [p[1], p[0]])
    d.heads += 1
    return Head(
        dims=(*d.h.dims[:-1], m), args=(d.h, by), kind="linear", name="plain", python=d.pick(*said)
    )


def along(d: Draw) -> Node:
    """A convolution along a sequence, of each channel or of all, that may see the past alone."""
    if not _is_sequence(d) or d.heads > 2:
        raise Dull
    n, t, c = d.h.dims
    if not _is_product(c):
        raise Dull
    side = d.rng.choice((3, 3, 4, 5, 7))
    depthwise = d.rng.random() < 0.5
    if depthwise and {"conv", "linear"} & {*d.ops}:
        raise Dull
    past = side == 4 or d.rng.random() < 0.4
    out = c
    if not depthwise and d.rng.random() < 0.5:
        out = d.size_once("m", ("out_channels", "hidden"), (36, 24, 12, 192, 156, 12))
    pad = side - 1 if past else side // 2
    names = ("conv", "conv1d", "dw_conv" if depthwise else "mix", "temporal")
    given = window_layer(d, c, out, side, 1, 0 if past else pad, names, depthwise=depthwise)
    across = turned(d.h, d.pick("{0}.transpose(1, 2)", "{0}.permute(0, 2, 1)"))
    call = f"{given[0].python}(F.pad({{0}}, ({pad}, 0)))" if past else f"{given[0].python}({{0}})"
    found: Node = Head(
        dims=(n, out, t),
        args=(across, *given),
        kind="convolution",
        name="conv1d",
        numbers={"side": side, "depthwise": depthwise, "pad": pad},
        python=call,
    )
    if d.rng.random() < 0.5:
        found = act(d, found, d.rng.choice(SMOOTH))
    return turned(found)


def image_moved(d: Draw) -> Node:
    """A shuffle of places and channels, a pool of two by two, or one along an axis."""
    if not d.images or len(d.h.dims) != 4:
        raise Dull
    n, c, h, w = d.h.dims
    form = d.rng.randrange(4)
    d.ops.append("shuffle")
    if form == 0:
        if not d.divides(c, 4) or not _is_product(c):
            raise Dull
        return View(
            dims=(n, c / 4, h * 2, w * 2),
            args=(d.h,),
            python="F.pixel_shuffle({0}, 2)",
            place=lambda p: [
                p[0],
                f"{p[1]} * 4 + {p[2]} % 2 * 2 + {p[3]} % 2",
                f"{p[2]} / 2",
                f"{p[3]} / 2",
            ],
        )
    if form == 3:
        axis = d.rng.choice((2, 3))
        name = d.rng.choice(("mean", "max"))
        strip = d.reduce(d.h, name, (axis,), keepdim=True, names=("strip", "line"))
        return d.each("{0} * {1}", "{0} * {1}", d.h, act(d, strip, "sigmoid"))
    if not (d.divides(h, 2) and d.divides(w, 2)):
        raise Dull
    parts = corners(d.h, passed=True)
    if form == 1:
        return d.each(
            "0.25f * ({0} + {1} + {2} + {3})",
            d.pick("F.avg_pool2d({0}, 2)", "F.avg_pool2d({0}, kernel_size=2, stride=2)"),
            *parts,
        )
    return d.each(
        "fmaxf(fmaxf({0}, {1}), fmaxf({2}, {3}))",
        d.pick("F.max_pool2d({0}, 2)", "F.max_pool2d({0}, kernel_size=2, stride=2)"),
        *parts,
    )
