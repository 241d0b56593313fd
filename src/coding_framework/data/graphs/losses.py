"""What a module may end with: losses, of all elements or of each row."""

from __future__ import annotations

from coding_framework.data.graphs.draw import Draw, Dull, is_channels
from coding_framework.data.graphs.elementwise import act
from coding_framework.data.graphs.nodes import Head, Node, View
from coding_framework.data.graphs.places import neighbours


def _all(d: Draw, x: Node) -> Node:
    """The mean of all elements."""
    d.heads += 1
    d.ops.append("mean")
    return Head(
        dims=(),
        args=(x,),
        kind="reduce",
        name="mean",
        axes=tuple(range(len(x.dims))),
        python=d.pick("{0}.mean()", "torch.mean({0})"),
    )


def error(d: Draw) -> Node:
    """A loss against a target, whole or by rows."""
    if len(d.inputs) > 3 or len(d.h.dims) > 3:
        raise Dull
    y = d.input(d.h.dims, d.rng.choice(("target", "targets", "y", "label")))
    d.ops.append("error")
    form = d.rng.randrange(6)
    if form == 0:
        gap = act(d, d.each("{0} - {1}", "{0} - {1}", d.h, y, names=("diff", "err")), "square")
    elif form == 1:
        gap = act(d, d.each("{0} - {1}", "{0} - {1}", d.h, y, names=("diff", "err")), "abs")
    elif form == 2:
        gap = d.each("huber({0} - {1})", 'F.smooth_l1_loss({0}, {1}, reduction="none")', d.h, y)
    elif form == 3:
        gap = d.each(
            "softplus({0}) - {0} * sigmoid({1})",
            'F.binary_cross_entropy_with_logits({0}, torch.sigmoid({1}), reduction="none")',
            d.h,
            y,
        )
    elif form == 4:
        gap = d.each("fmaxf(1.0f - {0} * {1}, 0.0f)", "F.relu(1 - {0} * {1})", d.h, y)
    else:
        q = d.rng.choice((0.1, 0.3, 0.7, 0.9))
        said = d.constant("quantile", q)
        gap = d.each(
            f"fmaxf({q}f * ({{1}} - {{0}}), ({q}f - 1.0f) * ({{1}} - {{0}}))",
            f"torch.maximum({said} * ({{1}} - {{0}}), ({said} - 1) * ({{1}} - {{0}}))",
            d.h,
            y,
        )
    if d.rng.random() < 0.3:
        return d.reduce(gap, d.rng.choice(("mean", "sum")), (len(gap.dims) - 1,))
    return _all(d, gap)


def _log_softmax(d: Draw, x: Node, *names: str) -> Head:
    return d.softmax(x, len(x.dims) - 1, names or ("logp", "log_probs"), "log_softmax")


def of_classes(d: Draw) -> Node:
    """A loss of logits: against labels, or against another tensor's distribution."""
    if d.images or len(d.h.dims) not in (2, 3) or len(d.inputs) > 2 or d.heads > 3:
        raise Dull
    if not is_channels(d.h.dims[-1]):
        raise Dull
    form = d.rng.randrange(5)
    if form == 0:
        logp = _log_softmax(d, d.h)
        p = d.softmax(d.h, len(d.h.dims) - 1, ("probs", "p"))
        entropy = d.reduce(d.each("{0} * {1}", "{0} * {1}", p, logp), "sum", (len(d.h.dims) - 1,))
        return d.each("-{0}", "-{0}", entropy)
    if form == 1:
        y = d.input(d.h.dims, "teacher", "target_logits", "other")
        value = d.rng.choice((1.0, 2.0, 4.0))
        said = d.constant("temperature", value)
        own, other = (d.each(f"{{0}} / {value}f", f"{{0}} / {said}", x) for x in (d.h, y))
        p = d.softmax(other, len(d.h.dims) - 1, ("p", "target_probs"))
        logq, logp = _log_softmax(d, own, "logq", "log_student"), _log_softmax(d, other, "logp")
        gap = d.each("{0} * ({1} - {2})", "{0} * ({1} - {2})", p, logp, logq)
        rows = d.reduce(gap, "sum", (len(d.h.dims) - 1,))
        return _all(d, rows) if d.rng.random() < 0.6 else rows
    labels = d.input(d.h.dims[:-1], "labels", "target", "targets", dtype="int64", high=d.h.dims[-1])
    logp = _log_softmax(d, d.h)
    d.heads += 1
    d.ops.append("gather")
    picked: Node = Head(
        dims=d.h.dims[:-1],
        args=(logp, labels),
        kind="pick",
        name="of_row",
        python="{0}.gather(-1, {1}.unsqueeze(-1)).squeeze(-1)",
        names=("picked", "logpt"),
    )
    nll: Node = d.each("-{0}", "-{0}", picked, names=("nll", "ce"))
    if form == 2:
        pt = d.each("expf({0})", "torch.exp({0})", picked, names=("pt", "p"))
        nll = d.each("(1.0f - {0}) * {1}", "(1 - {0}) * {1}", pt, nll)
    elif form == 3:
        smooth = d.reduce(logp, "mean", (len(d.h.dims) - 1,), names=("smooth",))
        said = d.constant("smoothing", 0.1)
        nll = d.each(
            "(1.0f - 0.1f) * {0} - 0.1f * {1}",
            f"(1 - {said}) * {{0}} - {said} * {{1}}",
            nll,
            smooth,
        )
    return _all(d, nll) if d.rng.random() < 0.6 else nll


def overlap(d: Draw) -> Node:
    """A ratio of sums of two tensors: how much they have in common, or the angle between them."""
    if len(d.inputs) > 2 or d.heads > 3 or len(d.h.dims) < 2:
        raise Dull
    y = d.input(d.h.dims, "target", "y", "mask", "other")
    d.ops.append("overlap")
    rank = len(d.h.dims)
    axes = (rank - 1,) if d.rng.random() < 0.5 or rank == 2 else tuple(range(1, rank))
    if d.rng.random() < 0.5:
        p, q = act(d, d.h, "sigmoid", ("p", "pred")), act(d, y, "sigmoid", ("q", "t"))
        common = d.reduce(d.each("{0} * {1}", "{0} * {1}", p, q), "sum", axes, names=("inter",))
        a, b = (
            d.reduce(p, "sum", axes, names=("p_sum",)),
            d.reduce(q, "sum", axes, names=("q_sum",)),
        )
        said = d.constant("smooth", 1.0)
        form = d.rng.random() < 0.5
        ratio = d.each(
            "(2.0f * {0} + 1.0f) / ({1} + {2} + 1.0f)" if form
            else "({0} + 1.0f) / ({1} + {2} - {0} + 1.0f)",
            f"(2 * {{0}} + {said}) / ({{1}} + {{2}} + {said})" if form
            else f"({{0}} + {said}) / ({{1}} + {{2}} - {{0}} + {said})",
            common, a, b, names=("dice" if form else "iou",),
        )  # fmt: skip
        lost = d.each("1.0f - {0}", "1 - {0}", ratio)
        return _all(d, lost) if d.rng.random() < 0.5 else lost
    axes = (rank - 1,)
    dot = d.reduce(d.each("{0} * {1}", "{0} * {1}", d.h, y), "sum", axes, names=("dot",))
    a, b = (d.reduce(x, "norm", axes, names=names) for x, names in ((d.h, ("nx",)), (y, ("ny",))))
    cosine = d.each(
        "{0} / fmaxf({1} * {2}, 1e-06f)",
        "{0} / ({1} * {2}).clamp(min=1e-6)",
        dot, a, b, names=("cos_sim", "sim"),
    )  # fmt: skip
    return d.each("1.0f - {0}", "1 - {0}", cosine) if d.rng.random() < 0.5 else cosine


def contrast(d: Draw) -> Node:
    """Each row against all rows of another tensor, of which its own is the right one."""
    if len(d.h.dims) != 2 or d.images or len(d.inputs) > 2 or d.heads > 1:
        raise Dull
    n, c = d.h.dims
    if not is_channels(c):
        raise Dull
    y = d.input(d.h.dims, "positives", "other", "targets_emb")
    rows: list[Node] = [d.h, y]
    if d.rng.random() < 0.7:
        call = "F.normalize({0}, dim=-1)"
        rows = [
            Head(dims=x.dims, args=(x,), kind="row", name="unit", axes=(1,), python=call)
            for x in rows
        ]
    d.heads += 2
    d.ops.append("contrast")
    value = d.rng.choice((0.1, 0.2, 0.5))
    said = d.constant("temperature", value)
    product = d.product(
        rows[0],
        rows[1],
        "{0} @ {1}.t()",
        "{0} @ {1}.T",
        "torch.matmul({0}, {1}.t())",
        transposed=True,
        names=("sim", "logits"),
    )
    scaled = d.each(f"{{0}} / {value}f", f"{{0}} / {said}", product, names=("logits",))
    if d.rng.random() < 0.3:
        return d.softmax(scaled, 1)
    logp = _log_softmax(d, scaled)
    own = View(
        dims=(n,), args=(logp,), place=lambda p: [p[0], p[0]],
        python=d.pick("{0}.diagonal()", "torch.diagonal({0})", "{0}.diag()"),
    )  # fmt: skip
    lost = d.each("-{0}", "-{0}", own)
    return _all(d, lost) if d.rng.random() < 0.7 else lost


def roughness(d: Draw) -> Node:
    """How much neighbours differ."""
    if d.heads > 3:
        raise Dull
    rank = len(d.h.dims)
    d.ops.append("roughness")
    function = d.rng.choice(("abs", "square"))

    def gap(axis: int) -> Node:
        later, former = neighbours(d.h, axis)
        return act(d, d.each("{0} - {1}", "{0} - {1}", later, former), function)

    if d.images and rank == 4:
        a, b = _all(d, gap(2)), _all(d, gap(3))
        return d.each("{0} + {1}", "{0} + {1}", a, b)
    if rank != 3 or d.images or d.h.dims[1].text != "t":
        raise Dull
    return _all(d, gap(1)) if d.rng.random() < 0.5 else d.reduce(gap(1), "mean", (1,))


LOSSES = (error, of_classes, overlap, contrast, roughness)
"""Each is as likely."""
