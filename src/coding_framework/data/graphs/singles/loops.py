"""Reductions, rows, products, norms, convolutions, and what an index picks."""

from __future__ import annotations

from coding_framework.data.graphs.draw import Draw, Dull, is_channels
from coding_framework.data.graphs.elementwise import keep
from coding_framework.data.graphs.loops import window_layer
from coding_framework.data.graphs.nodes import (
    ONE,
    PASSED,
    PASSED_BOTH,
    Extent,
    Given,
    Head,
    Node,
    View,
)
from coding_framework.data.graphs.singles.moves import told
from coding_framework.data.graphs.singles.values import new_input


def reduced(d: Draw) -> Node:
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
        axes = rng.choice(((rank - 2, rank - 1), (0, rank - 1), tuple(range(1, rank))))
    told(d.h.dims[axes[-1]])
    kept = rng.random() < 0.4
    found = d.reduce(d.h, name, axes, keepdim=kept)
    if name in ("max", "min") and rng.random() < 0.6:
        tail = ", keepdim=True" if kept else ""
        found.python = d.pick(f"{{0}}.{name}(", f"torch.{name}({{0}}, ")
        found.python += f"dim={axes[0]}{tail})" + d.pick(".values", "[0]")
    return found


def log_sum_exp(d: Draw) -> Node:
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


def soft(d: Draw) -> Node:
    rank = len(d.h.dims)
    if rank < 2:
        raise Dull
    axis = d.rng.choice((rank - 1, rank - 1, rank - 1, d.rng.randrange(rank)))
    told(d.h.dims[axis])
    return d.softmax(d.h, axis, (), d.rng.choice(("softmax", "softmax", "log_softmax")))


def linear(d: Draw) -> Node:
    inner = d.h.dims[-1] if d.h.dims else ONE
    if d.images or not is_channels(inner) or not inner.text.isalpha():
        raise Dull
    m = d.size("m", "m", (36, 24, 12, d.rng.choice((64, 256, 1024)), 156, 12))
    if d.rng.random() < 0.75 or not isinstance(d.h, Given):
        return d.linear(d.h, d.rng.choice((m, m, inner)))
    rows = new_input(d, (m, inner))
    rank = len(d.h.dims)
    said, more = "F.linear({0}, {1})", []
    form = d.rng.randrange(3)
    if form == 0:
        said, more = "F.linear({0}, {1}, {2})", [new_input(d, (m,))]
    elif form == 1:
        left, right = d.pick("abcd", "bnld", "bthd", "nijd")[4 - rank :], d.pick("m", "k", "o")
        said = f'torch.einsum("{left},{right}{left[-1]}->{left[:-1]}{right}", {{0}}, {{1}})'
    d.heads += 1
    d.ops.append("linear")
    return Head(
        dims=(*d.h.dims[:-1], m), args=(d.h, rows, *more), kind="linear", name="linear", python=said
    )


def product(d: Draw) -> Node:
    rank = len(d.h.dims)
    if rank < 2 or d.images:
        raise Dull
    m = d.size("m", "m", (20, 24, 12, d.rng.choice((64, 256)), 156, 12))
    if d.rng.random() < 0.3:  # by rows of the other one
        y = new_input(d, (*d.h.dims[:-2], m, d.h.dims[-1]))
        left = "bhid"[4 - rank :]
        rows = f'torch.einsum("{left},{left[:-2]}j{left[-1]}->{left[:-1]}j", {{0}}, {{1}})'
        d.ops.append("einsum")
        return d.product(d.h, y, rows, transposed=True)
    y = new_input(d, (*d.h.dims[:-2], d.h.dims[-1], m))
    d.ops.append("matmul")
    said = ["{0} @ {1}", "torch.matmul({0}, {1})"]
    if rank == 3:
        said.append("torch.bmm({0}, {1})")
    return d.product(d.h, y, *said)


def plain_layer_norm(d: Draw) -> Node:
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


def pooled_image(d: Draw) -> Node:
    if not d.images:
        raise Dull
    axes, said = d.rng.choice(
        (((2, 3), "1"), ((2, 3), "1"), ((2,), "(1, None)"), ((3,), "(None, 1)"))
    )
    told(d.h.dims[axes[0]])
    found = d.reduce(d.h, "mean", axes, keepdim=True)
    found.python = f"F.adaptive_avg_pool2d({{0}}, {said})"
    return found


def summed_up(d: Draw) -> Node:
    rank = len(d.h.dims)
    if rank < 2:
        raise Dull
    axis = d.rng.choice((rank - 1, d.rng.randrange(rank)))
    name = d.rng.choice(("cumsum", "cumsum", "cumprod", "logcumsumexp", "cummax"))
    d.heads += 1
    d.ops.append(name)
    said = d.pick(f"torch.{name}({{0}}, dim={axis})", f"{{0}}.{name}({axis})")
    return Head(
        dims=d.h.dims, args=(d.h,), kind="scan", name=name, axes=(axis,),
        python=said + d.pick(".values", "[0]") * (name == "cummax"),
    )  # fmt: skip


def picked(d: Draw) -> Node:
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


def of_channels(d: Draw, named: str) -> list[View]:
    """What a batch norm has of each channel: statistics, weight and bias."""
    dims = (d.h.dims[1], *[ONE] * (len(d.h.dims) - 2))
    members = ("running_mean", "running_var", "weight", "bias")
    given = [d.input(dims[:1], f"{named}_{one}") for one in members]
    given[1].low = 0.1
    return [View(dims=dims, args=(p,), python=PASSED, place=keep(0)) for p in given]


def batch_norm(d: Draw) -> Node:
    """By the statistics that a layer has kept."""
    rank = len(d.h.dims)
    if rank not in (2, 3, 4) or (d.x.dims[1].text in "st" and rank > 2):
        raise Dull
    wide = of_channels(d, d.pick("bn", "norm"))
    d.ops.append("batch_norm")
    return d.each(
        "({0} - {1}) * rsqrtf({2} + 1e-05f) * {3} + {4}",
        "F.batch_norm({0}, {1}, {2}, weight={3}, bias={4})", d.h, *wide,
        plan="({0} - {1}) * torch.rsqrt({2} + 1e-05) * {3} + {4}",
    )  # fmt: skip


def parametric(d: Draw) -> Node:
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
    return d.each("{0} > 0.0f ? {0} : {1} * {0}", "F.prelu({0}, {1})", d.h, wide)


def convolved(d: Draw) -> Node:
    """Over a sequence, an image or a volume: of each channel or of all, with steps, wide or at the
    edges."""
    axes = len(d.h.dims) - 2 if d.images or ("c" in d.sizes and len(d.h.dims) == 5) else 1
    if len(d.h.dims) != axes + 2 or d.h.dims[1].text != "c" or any(e.is_one for e in d.h.dims):
        raise Dull
    n, c, *lengths = d.h.dims
    side = d.rng.choice((1, 2, 3, 3, 3, 4, 5, 7)) if axes < 3 else d.rng.choice((1, 3, 3))
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


def filtered(d: Draw) -> Node:
    """An image or a sequence by a window that is given: for each channel its own, along one axis or
    both, as blurs and gradients have it; or for all channels of a sequence together."""
    axes = 2 if d.images else 1
    if len(d.h.dims) != axes + 2 or any(e.is_one for e in d.h.dims) or len(d.inputs) > 1:
        raise Dull
    n, c, *lengths = d.h.dims
    if axes == 1 and c.text != "c":
        raise Dull
    together = axes == 1 and d.rng.random() < 0.6
    side = Extent.number(d.rng.choice((2, 3, 5)))
    if d.rng.random() < 0.5:
        side = d.size("taps", "taps", (3, 2, 2, d.rng.choice((5, 7, 11)), 4, 2))
    kept = d.rng.choice(((True, True), (True, False), (False, True)))[:axes]
    sides = [side if one or axes == 1 else ONE for one in kept]
    out, inner = c, ONE
    channels = c
    if together:
        out, inner = d.size("m", "m", (36, 24, 12, d.rng.choice((32, 64)), 156, 12)), c
    else:
        channels = out = Extent.number(d.rng.choice((1, 3, 3, 4)))
        d.inputs.clear()
        d.h = d.x = new_input(d, (n, channels, *lengths))
    window = new_input(d, (out, inner, *sides))
    made = [e + ONE + s * -1 for e, s in zip(lengths, sides, strict=True)]
    if any(min(d.values(e)) < 1 for e in made):
        raise Dull
    groups = "" if together or out.is_one else f", groups={out.text}"
    d.heads += 1
    d.ops.append("conv" if together else "depthwise_conv")
    return Head(
        dims=(n, out, *made), args=(d.h, window), kind="convolution", name=f"conv{axes}d",
        numbers={"depthwise": not together, "pad": 0},
        python=f"F.conv{axes}d({{0}}, {{1}}{groups})",
    )  # fmt: skip


def cross_entropy(d: Draw) -> Node:
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


def indexed(d: Draw) -> Node:
    """Rows of a tensor that an index names."""
    if len(d.h.dims) not in (1, 2) or any(e.is_one for e in d.h.dims) or d.inputs[1:]:
        raise Dull
    m = d.size("m", "m", (16, 9, 6, d.rng.choice((200, 2048)), 77, 6))
    index: Node
    if d.rng.random() < 0.35:  # a row of a list of edges
        row = d.rng.choice("01")
        edges = d.input((Extent.number(2), m), "in1", dtype="int64", high=d.h.dims[0])
        index = View(dims=(m,), args=(edges,), python=f"{{0}}[{row}]", place=lambda p: [row, p[0]])
    else:
        index = d.input((m,), "in1", dtype="int64", high=d.h.dims[0])
    d.heads += 1
    d.ops.append("index")
    return Head(
        dims=(m, *d.h.dims[1:]), args=(d.h, index), kind="pick", name="of_table",
        python=d.pick("{0}[{1}]", "{0}[{1}]", "torch.index_select({0}, 0, {1})"),
    )  # fmt: skip
