"""Idioms that move elements: halves and groups apart and together, shifts, orders of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coding_framework.data.graphs.draw import Draw, Dull, is_channels
from coding_framework.data.graphs.elementwise import SMOOTH, act, keep
from coding_framework.data.graphs.nodes import (
    ONE,
    PASSED,
    Extent,
    Joined,
    Node,
    Parts,
    Places,
    View,
    with_extent,
)


def pieces(
    d: Draw, x: Node, count: int, axis: int, names: tuple[str, ...], *, exact: bool = False
) -> list[Node]:
    """A tensor cut into equal parts along an axis; exact: or in two of an odd length. In three or
    more only where a layer tells the length: else the judge tries one that they do not divide."""
    extent = x.dims[axis]
    known = d.is_told(extent) or (count == 2 and (exact or _is_whole(d, extent)))
    if not d.divides(extent, count) or not known:
        raise Dull
    part = d.part(x.dims[axis], up=True) if exact else x.dims[axis] / count
    rank = len(x.dims)
    said = "-1" if axis == rank - 1 and d.rng.random() < 0.75 else str(axis)
    parts = Parts(
        f"{{0}}.chunk({count}, dim={said})"
        if d.rng.random() < 0.7
        else f"torch.chunk({{0}}, {count}, dim={said})",
        names,
    )
    found: list[Node] = []
    for number in range(count):
        start = part * number

        def place(p: Places, start: Extent = start) -> list[str]:
            moved = list(p)
            if start.terms and start.text != "0":
                text = f"{start.text}"
                moved[axis] = text if p[axis] == "0" else f"{p[axis]} + {text}"
            return moved

        own = x.dims[axis] + part * -1 if exact and number else part
        dims = with_extent(x.dims, axis, own)
        found.append(View(dims=dims, args=(x,), place=place, part=(parts, number)))
    d.ops.append("chunk")
    return found


def halves(d: Draw, x: Node, *names: tuple[str, ...]) -> list[Node]:
    said = tuple(d.rng.choice(n) for n in names) or d.rng.choice(
        (("a", "b"), ("x1", "x2"), ("left", "right"), ("value", "gate"), ("u", "v"))
    )
    return pieces(d, x, 2, len(x.dims) - 1, said)


def gated(d: Draw) -> Node:
    """One half times a function of the other."""
    axis = 1 if d.images and len(d.h.dims) == 4 else len(d.h.dims) - 1
    if d.divides(d.h.dims[axis], 3) and d.rng.random() < 0.25:
        a, b, c = pieces(
            d, d.h, 3, axis, d.rng.choice((("a", "b", "c"), ("q", "k", "v"), ("r", "z", "n")))
        )
        return d.each(
            "{0} * {1} + {2}", "{0} * {1} + {2}", act(d, a, "sigmoid"), act(d, b, "tanh"), c
        )
    names = d.rng.choice((("a", "b"), ("x1", "x2"), ("value", "gate"), ("u", "v")))
    form = d.rng.randrange(4)
    a, b = pieces(d, d.h, 2, axis, names, exact=form == 2)
    if form == 0:
        return d.each("{0} * {1}", "{0} * {1}", a, act(d, b, d.rng.choice(SMOOTH)))
    if form == 1:
        return d.each("{0} + {1}", "{0} + {1}", act(d, a, d.rng.choice(SMOOTH)), b)
    if form == 2:
        d.ops.append("cat")
        return cat(d, [act(d, b), a], axis)
    return d.each("{0} * {1}", "{0} * {1}", a, b)


def cat(d: Draw, parts: Sequence[Node], axis: int) -> Node:
    total = parts[0].dims[axis]
    for p in parts[1:]:
        total = total + p.dims[axis]
    dims = with_extent(parts[0].dims, axis, total)
    said = "-1" if axis == len(dims) - 1 and d.rng.random() < 0.7 else str(axis)
    inside = ", ".join(f"{{{n}}}" for n in range(len(parts)))
    call = d.pick("torch.cat([{}], dim={})", "torch.cat(({}), dim={})")
    return Joined(
        dims=dims,
        args=tuple(parts),
        axis=axis,
        python=call.replace("{}", inside, 1).replace("{}", said, 1),
    )


def turned_halves(d: Draw) -> Node:
    """Halves by slices, put together the other way round."""
    axis = len(d.h.dims) - 1
    if d.images or not d.divides(d.h.dims[axis], 2):
        raise Dull
    d.ops.append("slices")
    form = d.rng.randrange(4)
    if form > 1:  # even and odd
        if not _is_whole(d, d.h.dims[axis]):
            raise Dull
        half = d.h.dims[axis] / 2
        dims = (*d.h.dims[:-1], half)
        even = View(
            dims=dims,
            args=(d.h,),
            python="{0}[..., 0::2]",
            names=("even", "x_even"),
            place=lambda p: [*p[:-1], f"{p[-1]} * 2"],
        )
        odd = View(
            dims=dims,
            args=(d.h,),
            python="{0}[..., 1::2]",
            names=("odd", "x_odd"),
            place=lambda p: [*p[:-1], f"{p[-1]} * 2 + 1"],
        )
        if form == 2:
            return d.each("{0} * {1}", "{0} * {1}", even, act(d, odd, "sigmoid"))
        return d.each("{0} * {0} + {1} * {1}", "{0} ** 2 + {1} ** 2", even, odd)
    half = d.part(d.h.dims[axis], up=False)
    dims = (*d.h.dims[:-1], half)
    rest = (*d.h.dims[:-1], d.h.dims[-1] + half * -1)
    said = d.pick("{0}.size(-1) // 2", "{0}.shape[-1] // 2")
    first = View(
        dims=dims,
        args=(d.h,),
        python=f"{{0}}[..., :{said}]",
        names=("first", "lo", "front"),
        place=list,
    )
    second = View(
        dims=rest,
        args=(d.h,),
        python=f"{{0}}[..., {said}:]",
        names=("second", "hi", "back"),
        place=lambda p: [*p[:-1], f"{p[-1]} + {half.text}"],
    )
    if form == 0:
        minus = d.each("-{0}", "-{0}", second)
        return cat(d, [minus, first], axis)
    return cat(d, [act(d, first), second], axis)


def _is_whole(d: Draw, extent: Extent) -> bool:
    """Whether it is a size itself, or a layer tells it: of a half the judge often tries three, of
    which two places are even and one, which is broadcast, is odd."""
    return extent.text in d.sizes or d.is_told(extent)


def with_other(d: Draw) -> Node:
    """Another tensor beside it along an axis."""
    if len(d.inputs) > 3:
        raise Dull
    if "s" in d.sizes:
        raise Dull
    axis = 1 if d.images and len(d.h.dims) == 4 else len(d.h.dims) - 1
    own = d.size(
        "s",
        d.pick("skip_dim", "extra_dim", "context_dim", "other_channels"),
        (24, 12, 12, d.rng.choice((96, 192)), 60, 12),
    )
    dims = with_extent(d.h.dims, axis, own)
    y = d.input(dims, d.rng.choice(("skip", "y", "other", "context", "extra")))
    d.ops.append("cat")
    return cat(d, [d.h, y] if d.rng.random() < 0.7 else [y, d.h], axis)


def transposed(d: Draw) -> Node:
    if len(d.h.dims) != 3 or d.images:
        raise Dull
    d.ops.append("transpose")
    python = d.pick("{0}.transpose(1, 2)", "{0}.permute(0, 2, 1)", "{0}.transpose(-2, -1)")
    return turned(d.h, python)


def turned(x: Node, python: str = "{0}.transpose(1, 2)") -> View:
    """The last two of three axes the other way round."""
    a, b, c = x.dims
    return View(dims=(a, c, b), args=(x,), place=lambda p: [p[0], p[2], p[1]], python=python)


def channels_last(d: Draw) -> Node:
    """An image's channels to the end, with its places as one axis or as two."""
    if not d.images or len(d.h.dims) != 4:
        raise Dull
    n, c, h, w = d.h.dims
    d.images = False
    d.ops.append("permute")
    if d.rng.random() < 0.5 and all("+" not in e.text for e in (h, w)):
        d.ops.append("flatten")
        return View(
            dims=(n, h * w, c),
            args=(d.h,),
            place=lambda p: [p[0], p[2], f"{p[1]} / {w.factor}", f"{p[1]} % {w.factor}"],
            python="{0}.flatten(2).transpose(1, 2)",
        )
    return View(
        dims=(n, h, w, c),
        args=(d.h,),
        place=lambda p: [p[0], p[3], p[1], p[2]],
        python="{0}.permute(0, 2, 3, 1)",
    )


def grouped(d: Draw) -> Node:
    """The channels as groups, something within them, and back."""
    axis = 1 if d.images and len(d.h.dims) == 4 else len(d.h.dims) - 1
    count = d.rng.choice((2, 3, 4, 6))
    if len(d.h.dims) > 4 or not d.divides(d.h.dims[axis], count) or "/" in d.h.dims[axis].text:
        raise Dull
    part = d.h.dims[axis] / count
    said = d.constant(d.pick("groups", "num_heads", "num_groups", "n_head"), count)
    dims = (*d.h.dims[:axis], Extent.number(count), part, *d.h.dims[axis + 1 :])
    python = f"{{0}}.unflatten({axis}, ({said}, -1))"
    if axis == 2 and d.rng.random() < 0.6:
        rest = (
            f"{{0}}.size(2) // {said}"
            if len(d.h.dims[2].text) == 1 and d.rng.random() < 0.5
            else "-1"
        )
        python = f"{{0}}.{d.pick('view', 'reshape')}({{0}}.size(0), {{0}}.size(1), {said}, {rest})"
    elif axis == 1 and len(d.h.dims) == 2 and d.rng.random() < 0.6:
        python = f"{{0}}.view({{0}}.size(0), {said}, -1)"
    wide = View(
        dims=dims,
        args=(d.h,),
        python=python,
        names=("grouped", "g", "heads_view"),
        place=lambda p: [*p[:axis], f"{p[axis]} * {part.factor} + {p[axis + 1]}", *p[axis + 2 :]],
    )
    form = d.rng.randrange(4)
    d.ops.append("groups")
    back_dims = d.h.dims
    if form == 0:  # shuffled
        swapped = (*dims[:axis], part, Extent.number(count), *dims[axis + 2 :])
        turn = View(
            dims=swapped,
            args=(wide,),
            python=f"{{0}}.transpose({axis}, {axis + 1})",
            place=lambda p: [*p[:axis], p[axis + 1], p[axis], *p[axis + 2 :]],
        )
        return View(
            dims=back_dims,
            args=(turn,),
            python=f"{{0}}.flatten({axis}, {axis + 1})",
            place=lambda p: [
                *p[:axis],
                f"{p[axis]} / {count}",
                f"{p[axis]} % {count}",
                *p[axis + 1 :],
            ],
        )
    if form == 1:  # one value for each group
        name = d.rng.choice(("mean", "max", "sum", "norm"))
        return d.reduce(wide, name, (axis + 1,))
    if form == 2:  # normalised in each group
        mean = d.reduce(wide, "mean", (axis + 1,), keepdim=True, names=("mu", "mean", "avg"))
        centred = d.each("{0} - {1}", "{0} - {1}", wide, mean)
    else:
        biggest = d.reduce(wide, "norm", (axis + 1,), keepdim=True, names=("norm", "length"))
        centred = d.each("{0} / ({1} + 1e-06f)", "{0} / ({1} + 1e-6)", wide, biggest)
    return View(
        dims=back_dims,
        args=(centred,),
        python=d.pick(
            f"{{0}}.flatten({axis}, {axis + 1})"
            if axis + 2 < len(dims)
            else f"{{0}}.flatten({axis})"
        ),
        place=lambda p: [
            *p[:axis],
            f"{p[axis]} / {part.factor}",
            f"{p[axis]} % {part.factor}",
            *p[axis + 1 :],
        ],
    )


def neighbours(x: Node, axis: int) -> tuple[View, View]:
    """Without the first and without the last place along an axis."""
    less = x.dims[axis] + Extent.number(-1)
    dims = with_extent(x.dims, axis, less)
    before = ":, " * axis
    later = View(
        dims=dims,
        args=(x,),
        python=f"{{0}}[{before}1:]",
        place=lambda p: [*p[:axis], f"{p[axis]} + 1", *p[axis + 1 :]],
    )
    return later, View(dims=dims, args=(x,), python=f"{{0}}[{before}:-1]", place=list)


def shifted(d: Draw) -> Node:
    """Differences of neighbours, a shift, or a flip along the places."""
    if len(d.h.dims) != 3 or d.images or not d.h.dims[1].text == "t":
        raise Dull
    n, t, c = d.h.dims
    d.ops.append("shift")
    form = d.rng.randrange(3)
    later, former = neighbours(d.h, 1)
    later.names, former.names = ("later", "nxt"), ("former", "prev_x")
    if form == 0:
        return d.each("{0} - {1}", "{0} - {1}", later, former)
    if form == 1:
        zero = d.each(
            "0.0f * {0}",
            "torch.zeros_like({0})",
            View(dims=(n, ONE, c), args=(d.h,), python="{0}[:, :1]", place=list),
        )
        moved = Joined(
            dims=d.h.dims,
            args=(zero, former),
            axis=1,
            python="torch.cat([{0}, {1}], dim=1)",
            names=("shifted", "x_prev"),
        )
        return d.each("0.5f * ({0} + {1})", "0.5 * ({0} + {1})", d.h, moved)
    return View(
        dims=d.h.dims,
        args=(d.h,),
        python=d.pick("{0}.flip(1)", "torch.flip({0}, dims=[1])"),
        place=lambda p: [p[0], f"{t.text} - 1 - {p[1]}", p[2]],
    )


def _every_second(a: int, b: int) -> Callable[[Places], list[str]]:
    """From a place of two by two on."""
    down, right = (f" + {offset}" if offset else "" for offset in (a, b))
    return lambda p: [*p[:2], f"{p[2]} * 2{down}", f"{p[3]} * 2{right}"]


def corners(x: Node, *, passed: bool = False) -> list[View]:
    """The four places of each two by two; passed: another node says the call."""
    n, c, h, w = x.dims
    return [
        View(
            dims=(n, c, h / 2, w / 2),
            args=(x,),
            python=PASSED if passed else f"{{0}}[:, :, {a}::2, {b}::2]",
            place=_every_second(a, b),
        )
        for a in (0, 1)
        for b in (0, 1)
    ]


def resampled(d: Draw) -> Node:
    """Every second place, each twice, or the mean of two by two."""
    if not d.images or len(d.h.dims) != 4:
        raise Dull
    n, c, h, w = d.h.dims
    if not (d.divides(h, 2) and d.divides(w, 2)):
        raise Dull
    d.ops.append("resample")
    form = d.rng.randrange(3)
    if form == 0:
        return View(
            dims=(n, c, d.part(h, up=True), d.part(w, up=True)),
            args=(d.h,),
            python="{0}[:, :, ::2, ::2]",
            place=lambda p: [*p[:2], f"{p[2]} * 2", f"{p[3]} * 2"],
        )
    if form == 1:
        return View(
            dims=(n, c, h * 2, w * 2),
            args=(d.h,),
            python='F.interpolate({0}, scale_factor=2, mode="nearest")',
            place=lambda p: [*p[:2], f"{p[2]} / 2", f"{p[3]} / 2"],
        )
    if not (_is_whole(d, h) and _is_whole(d, w)):
        raise Dull
    parts = corners(d.h)
    if d.rng.random() < 0.5:
        return cat(d, parts, 1)
    return d.each("0.25f * ({0} + {1} + {2} + {3})", "({0} + {1} + {2} + {3}) / 4", *parts)


def scale_shift_from(d: Draw) -> Node:
    """A linear layer of a condition gives a scale and a shift."""
    if (d.images and len(d.h.dims) != 4) or len(d.h.dims) < 3 or d.heads > 3 or len(d.inputs) > 3:
        raise Dull
    channel = d.h.dims[1] if d.images else d.h.dims[-1]
    if not is_channels(channel):
        raise Dull
    k = d.size_once("k", ("cond_dim", "z_dim", "ctx_dim"), (20, 36, 8, 256, 100, 8))
    y = d.input((d.h.dims[0], k), "cond", "z", "emb", "c_in")
    both = d.linear(y, channel * 2, "to_scale_shift", "modulation", "affine", "film")
    a, b = halves(d, both, ("scale", "gamma"), ("shift", "beta"))
    d.ops.append("modulate")
    if d.images:
        tail = d.pick("[:, :, None, None]", ".unsqueeze(-1).unsqueeze(-1)")
        dims: tuple[Extent, ...] = (d.h.dims[0], channel, ONE, ONE)
        place = keep(0, 1)
    else:
        tail, dims, place = (
            d.pick(".unsqueeze(1)", "[:, None]"),
            (d.h.dims[0], ONE, channel),
            keep(0, 2),
        )
    a, b = (View(dims=dims, args=(p,), python=f"{{0}}{tail}", place=place) for p in (a, b))
    return d.each("{0} * (1.0f + {1}) + {2}", "{0} * (1 + {1}) + {2}", d.h, a, b)
