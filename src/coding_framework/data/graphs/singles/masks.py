"""What depends on the place of an element, or on a class."""

from __future__ import annotations

from coding_framework.data.graphs.draw import Draw, Dull
from coding_framework.data.graphs.elementwise import keep
from coding_framework.data.graphs.nodes import ONE, PASSED, Each, Extent, Given, Node, View


def by_lengths(d: Draw) -> Node:
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


def mask_of_lengths(d: Draw) -> Node:
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


def of_squares(d: Draw) -> Node:
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


def by_place(d: Draw) -> Node:
    """A number, an angle or a distance of its place."""
    rank = len(d.h.dims)
    axis = d.rng.randrange(1, rank) if rank > 1 else 0
    place, told = f"{{i{axis}}}", f"torch.arange({{0}}.size({axis}))"
    tail = "[:" + ", None" * (rank - 1 - axis) + "]" if axis < rank - 1 else ""
    d.ops.append("place")
    if rank > 1 and axis < rank - 1 and d.h.dims[-1].text == "d" and d.rng.random() < 0.6:
        even = "torch.arange(0, {0}.size(-1), 2).float() / {0}.size(-1)"
        angle = f"torch.outer({told}.float(), 1.0 / (10000.0 ** ({even})))"
        name = d.pick("cos", "sin")
        turn = f"{name}f({place} * powf(10000.0f, -2.0f * ({{i{rank - 1}}} % (d / 2)) / d))"
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


def one_hot(d: Draw) -> Node:
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
    )  # fmt: skip
