"""Sums of what two tensors have together, of windows, of a whole batch, and what follows."""

from __future__ import annotations

from coding_framework.data.graphs.draw import Draw, Dull
from coding_framework.data.graphs.elementwise import keep
from coding_framework.data.graphs.nodes import (
    ONE,
    PASSED,
    PASSED_BOTH,
    Each,
    Extent,
    Head,
    Node,
    Places,
    View,
)
from coding_framework.data.graphs.singles.loops import of_channels
from coding_framework.data.graphs.singles.values import (
    new_input,
    pairwise_loss,
    require_plain,
)
from coding_framework.data.graphs.texts import bracketed, elements_of


def _over(x: Node, rank: int, *axes: int) -> View:
    """Its axes at these of `rank` ones."""
    own = dict(zip(axes, x.dims, strict=True))
    dims = tuple(own.get(axis, ONE) for axis in range(rank))
    return View(dims=dims, args=(x,), python=PASSED, place=keep(*axes))


def _within(d: Draw, x: Node, name: str, axes: tuple[int, ...], *, kept: bool = True) -> Head:
    """A reduction that what follows says in Python."""
    found = d.reduce(x, name, axes, keepdim=kept)
    found.plan, found.python = f"{{0}}.{name}(dim={axes}, keepdim={kept})", PASSED
    return found


def _gaps(d: Draw, axes: tuple[int, ...]) -> tuple[Head, Node]:
    """The mean, and the squares of what is left without it."""
    mean = _within(d, d.h, "mean", axes)
    gaps = d.each("square({0} - {1})", PASSED, d.h, mean, plan="({0} - {1}) ** 2")
    return mean, gaps


def einsum(d: Draw) -> Node:
    """Of two tensors: a product of their elements, added up along the axes that it leaves out."""
    require_plain(d, 2, 3, 4)
    h, rank = d.h, len(d.h.dims)
    m = d.size("m", "m", (16, 9, 6, d.rng.choice((48, 64, 128, 200)), 77, 6))
    a, b, *rest = h.dims
    forms = {
        2: (
            ("bi,bi->b", (0, 1), (a, b), (0, 1), (1,)),
            ("bi,bj->bij", (0, 1), (a, m), (0, 2), ()),
            ("nd,dk->nk", (0, 2), (b, m), (2, 1), (2,)),
            ("nd,d->n", (0, 1), (b,), (1,), (1,)),
        ),
        3: (
            ("ber,edr->bed", (0, 1, 3), (b, m, *rest), (1, 2, 3), (3,)),
            ("bed,be->bd", (0, 1, 2), (a, b), (0, 1), (1,)),
            ("btd,bt->bd", (0, 1, 2), (a, b), (0, 1), (1,)),
            ("btd,bd->bt", (0, 1, 2), (a, *rest), (0, 2), (2,)),
            ("bkd,bkd->bk", (0, 1, 2), (a, b, *rest), (0, 1, 2), (2,)),
            ("bkd,kd->bk", (0, 1, 2), (b, *rest), (1, 2), (2,)),
            ("nij,j->ni", (0, 1, 2), tuple(rest), (2,), (2,)),
        ),
        4: (
            ("bhtd,hde->bhte", (0, 1, 2, 4), (b, *rest[1:], m), (1, 4, 3), (4,)),
            ("bchw,bc->bhw", (0, 1, 2, 3), (a, b), (0, 1), (1,)),
            ("bhij,bj->bhi", (0, 1, 2, 3), (a, *rest[1:]), (0, 3), (3,)),
        ),
    }[rank]
    said, mine, dims, theirs, added = d.rng.choice(forms)
    y = new_input(d, dims)
    if said == "nd,dk->nk":
        d.ops.append("einsum")
        return d.product(h, y, f'torch.einsum("{said}", {{0}}, {{1}})')
    wide = max((*mine, *theirs)) + 1
    views = _over(h, wide, *mine), _over(y, wide, *theirs)
    product = d.each("{0} * {1}", PASSED_BOTH, *views)
    d.ops.append("einsum")
    if not added:
        product.python = f'torch.einsum("{said}", {{0}}, {{1}})'
        return product
    found = d.reduce(product, "sum", added)
    found.python = f'torch.einsum("{said}", {{0}})'
    return found


def added_at(d: Draw) -> Node:
    """Rows that are added to those that an index names, or the largest of them."""
    require_plain(d, 1, 2)
    x, rest = d.h, d.h.dims[1:]
    pairs = d.rng.random() < 0.4  # the index is a row of a list of edges
    m = d.size("m", "m", (24, 40, 10, d.rng.choice((512, 2048, 16384)), 150, 10))
    edges = (Extent.number(2), m) if pairs else (m,)
    y = d.input(edges, f"in{len(d.inputs)}", dtype="int64", high=x.dims[0])
    z = new_input(d, (m, *rest))
    row = d.rng.choice("01") if pairs else ""
    form = d.rng.choice(("index_add", "index_add", "scatter_add", "scatter_add", "amax", "amin"))
    said = f"{{0}}[{row}]" if pairs else "{0}"
    if form != "index_add" and rest:
        said += d.pick("[:, None]", ".unsqueeze(-1)", ".unsqueeze(1)") + ".expand_as({1})"
    place = (lambda p: [row, p[0]]) if pairs else keep(0)
    if "add" in form:
        d.ops.append(form)
        d.heads += 1
        index = View(dims=(m,), args=(y, z), python=said, place=place)
        base = d.pick("torch.zeros_like({2})", "torch.zeros_like({2})", "{2}")
        return Head(
            dims=x.dims, args=(index, z, x), kind="scatter", name="onto" if base == "{2}" else "",
            python=f"{base}.{form}(0, {{0}}, {{1}})",
        )  # fmt: skip
    if not rest:
        raise Dull
    index = View(dims=(m, ONE, ONE), args=(y, z), python=said, place=place)
    shape = View(dims=(ONE, *x.dims), args=(x,), python=PASSED, place=keep(1, 2))
    none = {"amax": "-INFINITY", "amin": "INFINITY"}[form]
    own = d.each(f"{{0}} == {{i1}} ? {{1}} : {none}", PASSED_BOTH, index, _over(z, 3, 0, 2), shape)
    total = d.reduce(own, {"amax": "max", "amin": "min"}[form], (0,))
    total.python = PASSED
    d.ops[-1] = "scatter_reduce"
    return d.each(
        f"{{0}} == {none} ? 0.0f : {{0}}",
        f'torch.zeros_like({{1}}).scatter_reduce(0, {{0}}, reduce="{form}", include_self=False)',
        total, x,
    )  # fmt: skip


def batch_statistics(d: Draw) -> Node:
    """A norm of each channel by the mean and the variance of the batch."""
    rank = len(d.h.dims)
    if (
        rank not in (2, 3, 4)
        or any(e.is_one for e in d.h.dims)
        or (rank > 2 and "c" not in d.sizes)
    ):
        raise Dull
    axes = (0, *range(2, rank))
    mean, gaps = _gaps(d, axes)
    variance = _within(d, gaps, "mean", axes)
    wide = of_channels(d, d.pick("bn", "norm", "bn1"))
    d.ops[-2:] = ["batch_norm"]
    return d.each(
        "({0} - {1}) * rsqrtf({2} + 1e-05f) * {5} + {6}",
        "F.batch_norm({0}, {3}, {4}, weight={5}, bias={6}, training=True)", d.h, mean, variance,
        *wide, plan="({0} - {1}) * torch.rsqrt({2} + 1e-05) * {5} + {6}",
    )  # fmt: skip


def instance_norm(d: Draw) -> Node:
    """Of each channel of each image or sequence by its own mean and variance."""
    rank = len(d.h.dims)
    if rank not in (3, 4) or any(e.is_one for e in d.h.dims) or "c" not in d.sizes:
        raise Dull
    axes = tuple(range(2, rank))
    mean, gaps = _gaps(d, axes)
    variance = _within(d, gaps, "mean", axes)
    d.ops[-2:] = ["instance_norm"]
    said = d.pick("F.instance_norm({0})", "F.instance_norm({0}, eps=1e-5)",
                  "F.instance_norm({0}, None, None, None, None, True, 0.1, 1e-05)")  # fmt: skip
    return d.each(
        "({0} - {1}) * rsqrtf({2} + 1e-05f)", said, d.h, mean, variance,
        plan="({0} - {1}) * torch.rsqrt({2} + 1e-05)",
    )  # fmt: skip


def attention(d: Draw) -> Node:
    """Of queries, keys and values, as PyTorch has it in one call."""
    require_plain(d, 4)
    n, k, t, inner = d.h.dims
    if inner.text != "d":
        raise Dull
    m = d.size("m", "m", (16, 9, 6, d.rng.choice((48, 64, 128, 200)), 77, 6))
    causal = d.rng.random() < 0.4
    length = t if causal else m
    keys, values = (new_input(d, (n, k, length, inner)) for _ in range(2))
    scores = d.product(d.h, keys, PASSED_BOTH, transposed=True, plan="{0} @ {1}.transpose(-2, -1)")
    scaled: Node = d.each(
        f"{{0}} * rsqrtf((float){inner.text})", PASSED, scores,
        plan=f"{{0}} / math.sqrt({inner.text})",
    )  # fmt: skip
    if causal:
        later = "{0}.masked_fill(later, -inf)"
        scaled = d.each("{i3} > {i2} ? -INFINITY : {0}", PASSED, scaled, plan=later)
    soft = d.softmax(scaled, 3, (), "softmax")
    soft.plan, soft.python = "{0}.softmax(-1)", PASSED
    d.ops.append("attention")
    more = ", is_causal=True" if causal else ""
    said = f"F.scaled_dot_product_attention({{0}}, {{1}}{more})"
    return d.product(soft, values, said, plan="{0} @ {1}")


def spread(d: Draw) -> Node:
    """A variance or its root, along an axis or of all but the first ones."""
    rank = len(d.h.dims)
    if rank < 2:
        raise Dull
    first = d.rng.randrange(1, rank) if d.rng.random() < 0.5 else rank - 1
    axes = tuple(range(first, rank)) if d.rng.random() < 0.7 else (d.rng.randrange(rank),)
    inner = [d.h.dims[a] for a in axes]
    if any(e.is_one for e in inner):
        raise Dull
    _, gaps = _gaps(d, axes)
    kept = d.rng.random() < 0.6
    total = _within(d, gaps, "sum", axes, kept=kept)
    name = d.pick("var", "std", "std")
    whole = d.rng.random() < 0.4
    by = bracketed(elements_of(inner) if whole else f"{elements_of(inner)} - 1")
    c = f"{{0}} / {by}"
    said = f"dim={axes[0] if len(axes) == 1 else d.rng.choice((list(axes), axes))}"
    said += ", unbiased=False" if whole else ""
    said += ", keepdim=True" if kept else ""
    d.ops[-2:] = [name]
    return d.each(
        f"sqrtf({c})" if name == "std" else c,
        d.pick(f"{{0}}.{name}({said})", f"torch.{name}({{0}}, {said})"), total,
        plan=f"({c}).sqrt()" if name == "std" else c,
    )  # fmt: skip


def windows(d: Draw) -> Node:
    """The mean or the largest of each window of a sequence or an image."""
    axes = 2 if d.images else 1
    if len(d.h.dims) != axes + 2 or d.h.dims[1].text != "c" or any(e.is_one for e in d.h.dims):
        raise Dull
    n, c, *lengths = d.h.dims
    side = d.rng.choice((2, 2, 3, 4))
    apart = all(d.divides(e, side) for e in lengths) and d.rng.random() < 0.6
    if not apart and side > min(min(d.values(e)) for e in lengths):
        raise Dull
    step = side if apart else 1
    made = [e / side if apart else e + Extent.number(1 - side) for e in lengths]

    def place(p: Places) -> list[str]:
        starts = (f"{one} * {step}" if apart else one for one in p[2 : 2 + axes])
        return [*p[:2], *(f"{s} + {o}" for s, o in zip(starts, p[2 + axes :], strict=True))]

    window = View(
        dims=(n, c, *made, *[Extent.number(side)] * axes), args=(d.h,), python=PASSED, place=place
    )
    name = d.pick("mean", "max")
    found = d.reduce(window, name, tuple(range(2 + axes, 2 + 2 * axes)))
    called = f"F.{'avg' if name == 'mean' else 'max'}_pool{axes}d"
    several = (side,) * axes
    options = [f"{side}, stride={step}", f"{several}, stride={(step,) * axes}"]
    options.append(
        f"{several}, {(step,) * axes}, {(0,) * axes}, False, True"
        if name == "mean" and axes == 1
        else f"{side}, {step}, 0" + (", False, True, None" if name == "mean" else ", 1")
    )
    if apart:
        options.append(f"{side}")
    found.python = f"{called}({{0}}, {d.rng.choice(options)})"
    d.ops[-1] = f"{'avg' if name == 'mean' else 'max'}_pool{axes}d"
    return found


def mean_loss(d: Draw) -> Node:
    """Of all elements and their targets."""
    if not d.h.dims:
        raise Dull
    each = pairwise_loss(d)
    assert isinstance(each, Each)
    none = ', reduction="none"'
    if none not in each.python or "kl_div" in each.python:
        raise Dull
    said = each.python.replace(none, "").replace("{0}, {1}", "{0}")
    each.python = PASSED_BOTH
    each.plan = said.replace("{0}", "{0}, {1}").replace(")", f"{none})")
    d.heads += 1
    return Head(
        dims=(), args=(each,), kind="reduce", name="mean", axes=tuple(range(len(each.dims))),
        python=said,
    )  # fmt: skip


def by_count(d: Draw) -> Node:
    """Divided by how many of another tensor's elements are positive."""
    n = d.size_once("n", ("n",), (4, 3, 2, 64, 5, 2))
    y = new_input(d, d.rng.choice(((n,), d.h.dims or (n,))))
    positive = d.each("{0} > 0.0f ? 1.0f : 0.0f", "({0} > 0)", y)
    d.heads += 1
    d.ops.append("count")
    count = Head(
        dims=(), args=(positive,), kind="reduce", name="sum", axes=tuple(range(len(y.dims))),
        python="{0}.sum()",
    )  # fmt: skip
    return d.each("{0} / fmaxf({1}, 1.0f)", "{0} / {1}.clamp(min=1)", d.h, count)


def picked_of_axis(d: Draw) -> Node:
    """Along the second axis the element that an index of each first one names."""
    require_plain(d, 3)
    n, s, t = d.h.dims
    index = d.input((n,), f"in{len(d.inputs)}", dtype="int64", high=s)
    d.heads += 1
    d.ops.append("gather")
    kept = d.rng.random() < 0.6
    said = d.pick(
        "{0}.gather(1, {1}.view(-1, 1, 1).expand(-1, 1, {0}.size(2)))",
        "{0}.gather(1, {1}[:, None, None].expand(-1, -1, {0}.size(2)))",
    )
    if not kept:
        said = d.pick("{0}[torch.arange({0}.size(0)), {1}]", said + ".squeeze(1)")
    return Head(
        dims=(n, *[ONE] * kept, t), args=(d.h, index), kind="pick", name="of_axis", python=said
    )


def equal_pairs(d: Draw) -> Node:
    """Of a square: what two places have that are of one class, or of two."""
    rank = len(d.h.dims)
    if rank not in (2, 3) or d.h.dims[-1].text != d.h.dims[-2].text or d.h.dims[-1].is_one:
        raise Dull
    dims = d.h.dims[:-1]
    classes = Extent.number(d.rng.choice((2, 5, 10)))
    y = d.input(dims, f"in{len(d.inputs)}", dtype="int64", high=classes)
    before = ":, " * (rank - 2)
    rows = _over(y, rank, *range(rank - 1))
    rows.python = d.pick(f"{{0}}[{before}:, None]", "{0}.unsqueeze(-1)")
    columns = _over(y, rank, *range(rank - 2), rank - 1)
    columns.python = d.pick(f"{{0}}[{before}None, :]", "{0}.unsqueeze(-2)")
    low, said = d.rng.choice((
        ("0.0f", "0.0"), ("-1e9f", "-1e9"), ("-INFINITY", 'float("-inf")'),
        ("INFINITY", 'float("inf")'),
    ))  # fmt: skip
    d.ops.append("masked_fill")
    c, python = d.rng.choice((
        (f"{{1}} == {{2}} ? {low} : {{0}}", f"{{0}}.masked_fill({{1}} == {{2}}, {said})"),
        (f"{{1}} == {{2}} ? {{0}} : {low}", f"{{0}}.masked_fill(~({{1}} == {{2}}), {said})"),
        (f"{{1}} == {{2}} ? {{0}} : {low}", f"{{0}}.masked_fill({{1}} != {{2}}, {said})"),
        ("{1} == {2} ? {0} : 0.0f", "{0} * ({1} == {2})"),
    ))  # fmt: skip
    return d.each(c, python, d.h, rows, columns)
