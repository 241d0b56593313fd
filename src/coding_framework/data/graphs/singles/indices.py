"""What an index or a mask picks that is given as one: rows of each row, places of a row, columns of
ids, booleans.
"""

from __future__ import annotations

from coding_framework.data.graphs.draw import Draw, Dull, is_channels
from coding_framework.data.graphs.elementwise import keep
from coding_framework.data.graphs.nodes import ONE, PASSED, Extent, Head, Node, View
from coding_framework.data.graphs.singles.values import new_input, require_plain


def of_booleans(d: Draw) -> Node:
    """A mask as floats, or what a mask leaves of a tensor."""
    h, rank = d.h, len(d.h.dims)
    if rank not in (1, 2, 3, 4) or any(e.is_one for e in h.dims) or len(d.inputs) > 1:
        raise Dull
    if d.rng.random() < 0.25:
        d.inputs.clear()
        mask = d.input(d.x.dims, "in0", dtype="bool")
        d.ops.append("float")
        c, python = d.rng.choice((
            ("{0} ? 1.0f : 0.0f", "{0}.float()"),
            ("{0} ? 1.0f : 0.0f", "{0}.to(torch.float32)"),
            ("{0} ? 0.0f : 1.0f", "(~{0}).float()"),
        ))  # fmt: skip
        return d.each(c, python, mask)
    axes = tuple(range(rank))
    if rank > 1 and d.rng.random() < 0.6:
        axes = d.rng.choice(((0, rank - 1), (0, 1), (rank - 1,), (0,), (rank - 2, rank - 1)))
    mask = d.input(tuple(h.dims[a] for a in axes), f"in{len(d.inputs)}", dtype="bool")
    wide: Node = mask
    said = "{1}"
    if axes != tuple(range(rank)):
        dims = tuple(h.dims[a] if a in axes else ONE for a in range(rank))
        wide = View(dims=dims, args=(mask,), python=PASSED, place=keep(*axes))
        own = ", ".join(":" if a in axes else "None" for a in range(rank))
        lost = rank - 1 - axes[-1]
        said = f"{{1}}[{own}]"
        if len(axes) == rank - 1 and lost == 1:
            said = d.pick(said, "{1}.unsqueeze(-1)")
    value = d.rng.choice(("0.0", "-1e9", "-10000.0", 'float("-inf")', "-3.4028234663852886e+38"))
    low = "-INFINITY" if "inf" in value else f"{value}f"
    kept, left = f"{{1}} ? {{0}} : {low}", f"{{1}} ? {low} : {{0}}"
    c, python = d.rng.choice((
        (left, f"{{0}}.masked_fill({said}, {value})"),
        (left, f"{{0}}.masked_fill({said}, {value})"),
        (kept, f"{{0}}.masked_fill(~{said}, {value})"),
        (kept, f"{{0}}.masked_fill((~{said}), {value})"),
        (kept, f"{{0}}.masked_fill({said}.logical_not(), {value})"),
        (kept, f"torch.where({said}, {{0}}, {value})"),
        ("{1} ? {0} : 0.0f", f"{{0}} * {said}"),
        ("{1} ? {0} : 0.0f", f"{{0}} * {said}.float()"),
        ("{1} ? {0} : 0.0f", f"torch.where({said}, {{0}}, torch.zeros_like({{0}}))"),
    ))  # fmt: skip
    d.ops.append("masked_fill")
    return d.each(c, python, h, wide)


def gathered(d: Draw) -> Node:
    """Places of each row that an index names: as many as it says, or one, from a shifted list."""
    require_plain(d, 2, 3)
    h, rank = d.h, len(d.h.dims)
    d.heads += 1
    d.ops.append("gather")
    axis = d.pick("-1", str(rank - 1))
    if rank == 3 and d.rng.random() < 0.5:
        n, t, classes = h.dims
        y = d.input((n, t + ONE), "in1", dtype="int64", high=classes)
        by = d.rng.choice((0, 1))
        cut = "{0}[:, 1:]" if by else "{0}[:, :-1]"
        at = (lambda p: [p[0], f"{p[1]} + 1"]) if by else keep(0, 1)
        index = View(dims=(n, t, ONE), args=(y, h), python=PASSED, place=at)
        cut = cut.replace("{0}", "{1}")
        return Head(dims=(n, t, ONE), args=(h, index), kind="pick", name="of_row",
                    python=f"{{0}}.gather({axis}, {cut}.unsqueeze(-1))")  # fmt: skip
    m = d.size("m", "m", (16, 9, 6, d.rng.choice((20, 64, 256, 1000)), 77, 6))
    y = d.input((*h.dims[:-1], m), "in1", dtype="int64", high=h.dims[-1])
    said = d.pick(f"{{0}}.gather({axis}, {{1}})", f"torch.gather({{0}}, {axis}, {{1}})",
                  f"torch.take_along_dim({{0}}, {{1}}, dim={axis})")  # fmt: skip
    return Head(dims=y.dims, args=(h, y), kind="pick", name="of_row", python=said)


def rows_of_each(d: Draw) -> Node:
    """Of each first one the rows that its own list names."""
    require_plain(d, 2, 3)
    n, *rest = d.h.dims
    m = d.size("m", "m", (16, 9, 6, d.rng.choice((32, 128, 512)), 77, 6))
    y = d.input((n, m), "in1", dtype="int64", high=rest[0])
    d.heads += 1
    d.ops.append("index")
    own = "torch.arange({0}.size(0))"
    said = [f"{{0}}[{own}[:, None], {{1}}]", f"{{0}}[{own}.view(-1, 1), {{1}}]",
            f"{{0}}[{own}.unsqueeze(1), {{1}}]"]  # fmt: skip
    if len(rest) == 2:
        said.append("{0}.gather(1, {1}.unsqueeze(-1).expand(-1, -1, {0}.size(2)))")
    return Head(
        dims=(n, m, *rest[1:]), args=(d.h, y), kind="pick", name="of_rows", python=d.pick(*said)
    )


def ids_of_column(d: Draw) -> Node:
    """Rows of a table by a column of a list of ids."""
    if len(d.h.dims) != 2 or not is_channels(d.h.dims[-1]):
        raise Dull
    n, features = d.h.dims
    rows = d.size("rows", "rows", (20, 36, 8, d.rng.choice((1000, 50000)), 100, 8))
    d.inputs.clear()
    ids = d.input(
        (n, Extent.number(count := d.rng.choice((2, 3)))), "in0", dtype="int64", high=rows
    )
    column = str(d.rng.randrange(count))
    index = View(dims=(n,), args=(ids,), python=f"{{0}}[:, {column}]",
                 place=lambda p: [p[0], column])  # fmt: skip
    (table,) = d.module(f"nn.Embedding(<rows>, {d.layer_extent(features)})",
                        {"weight": (rows, features)}, "embed")  # fmt: skip
    d.heads += 1
    d.ops.append("embedding")
    return Head(dims=(n, features), args=(table, index), kind="pick", name="of_table",
                python=f"{table.python}({{1}})")  # fmt: skip


def outer(d: Draw) -> Node:
    """All products of two lists."""
    require_plain(d, 1)
    m = d.size("m", "m", (16, 9, 6, d.rng.choice((64, 128, 512)), 77, 6))
    y = new_input(d, (m,))
    own = View(dims=(*d.h.dims, ONE), args=(d.h,), python=PASSED, place=keep(0))
    d.ops.append("outer")
    said = d.pick("torch.outer({0}, {1})", "{0}[:, None] * {1}[None, :]",
                  "{0}.unsqueeze(1) * {1}")  # fmt: skip
    return d.each("{0} * {1}", said, own, y)


def unit(d: Draw) -> Node:
    """Of length one along an axis."""
    rank = len(d.h.dims)
    if rank < 2:
        raise Dull
    axis = d.rng.choice((1, 1, d.rng.randrange(rank)))
    if d.h.dims[axis].is_one:
        raise Dull
    said = "F.normalize({0}, dim=" + (f"{axis})" if axis < rank - 1 else d.pick("-1)", f"{axis})"))
    if axis == 1:
        said = d.pick(said, "F.normalize({0})", "F.normalize({0}, p=2, dim=1)")
    d.heads += 1
    d.ops.append("normalize")
    return Head(dims=d.h.dims, args=(d.h,), kind="row", name="unit", axes=(axis,), python=said)
