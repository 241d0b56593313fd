"""Elements at other places: turned round, repeated, padded, regrouped."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.graphs.draw import Draw, Dull
from coding_framework.data.graphs.nodes import (
    PASSED,
    Each,
    Extent,
    Joined,
    Node,
    Places,
    View,
    with_extent,
)
from coding_framework.data.graphs.singles.values import new_input


def crossed(d: Draw) -> Node:
    """The cross product of vectors."""
    dims = (*d.h.dims[:-1], Extent.number(3)) if len(d.h.dims) < 4 else ()
    if len(dims) < 2 or any(e.is_one for e in dims):
        raise Dull
    d.inputs.clear()
    x, y = (new_input(d, dims) for _ in range(2))
    axis = len(dims) - 1
    later, last = (_placed(axis, f"(@ + {by}) % 3") for by in (1, 2))
    views = [
        View(dims=dims, args=(one,), python=PASSED, place=place)
        for one, place in ((x, later), (y, last), (x, last), (y, later))
    ]
    d.ops.append("cross")
    said = d.pick("torch.cross({0}, {1}, dim=-1)", "torch.linalg.cross({0}, {1})")
    return d.each("{0} * {1} - {2} * {3}", said, *views)


def _moved(
    d: Draw, python: str, place: Callable[[Places], list[str]], dims: tuple[Extent, ...], op: str
) -> Node:
    d.ops.append(op)
    return View(dims=dims, args=(d.h,), python=python, place=place)


def _placed(axis: int, text: str) -> Callable[[Places], list[str]]:
    """The coordinate of an axis as `text` says, where @ is its own."""
    return lambda p: [*p[:axis], text.replace("@", p[axis]), *p[axis + 1 :]]


def told(extent: Extent) -> str:
    """Its text, where it is more than one."""
    if extent.is_one:
        raise Dull
    return extent.text


def rolled(d: Draw) -> Node:
    rank = len(d.h.dims)
    if rank > 2 and d.rng.random() < 0.4:
        return _rolled_twice(d)
    axis = d.rng.randrange(rank)
    length = told(d.h.dims[axis])
    by = d.rng.choice((1, -1, 2))
    said = "-1" if axis == rank - 1 and d.rng.random() < 0.5 else str(axis)
    python = d.pick(
        f"torch.roll({{0}}, {by}, {said})", f"torch.roll({{0}}, shifts={by}, dims={said})",
        f"{{0}}.roll({by}, {said})",
    )  # fmt: skip
    return _moved(d, python, _placed(axis, _shifted(length, by)), d.h.dims, "roll")


def _shifted(length: str, by: int) -> str:
    """Where the element comes from that a roll puts at @."""
    start = f"@ + {length} - {by}" if by > 0 else f"@ + {-by}"
    return f"({start}) % {length}"


def _rolled_twice(d: Draw) -> Node:
    """Along the last two axes; by nothing along one of them, or both, as of a list of shifts."""
    rank = len(d.h.dims)
    steps = d.rng.choice((0, 1, -1, 2)), d.rng.choice((0, 1, -1, 1))
    texts = []
    for axis, by in zip((rank - 2, rank - 1), steps, strict=True):
        length = told(d.h.dims[axis])
        texts.append(_shifted(length, by) if by else "@")

    def place(p: Places) -> list[str]:
        return [*p[:-2], texts[0].replace("@", p[-2]), texts[1].replace("@", p[-1])]

    said = d.pick(
        f"torch.roll({{0}}, shifts={steps}, dims=(-2, -1))",
        f"torch.roll({{0}}, {steps}, dims=({rank - 2}, {rank - 1}))",
    )
    return _moved(d, said, place, d.h.dims, "roll")


def flipped(d: Draw) -> Node:
    axis = d.rng.randrange(len(d.h.dims))
    text = f"{told(d.h.dims[axis])} - 1 - @"
    return _moved(d, f"torch.flip({{0}}, ({axis},))", _placed(axis, text), d.h.dims, "flip")


def repeated(d: Draw) -> Node:
    rank = len(d.h.dims)
    axis, count = d.rng.randrange(rank), d.rng.choice((2, 3, 4))
    dims = with_extent(d.h.dims, axis, d.h.dims[axis] * count)
    single = d.h.dims[axis].is_one
    if single and d.rng.random() < 0.6 and len(d.inputs) == 1:  # as often as another is long
        other = new_input(d, (d.h.dims[0], m := d.size("m", "m", (16, 9, 6, 200, 77, 6))))
        times = ", ".join("{1}.size(1)" if a == axis else "1" for a in range(rank))
        d.ops.append("repeat")
        return View(
            dims=with_extent(d.h.dims, axis, m), args=(d.h, other), python=f"{{0}}.repeat({times})",
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


def padded(d: Draw) -> Node:
    """Zeros before or after an axis, or both; or less of it and zeros, as a shift."""
    rank = len(d.h.dims)
    axis = d.rng.choice((rank - 1, max(0, rank - 2)))
    before, after = d.rng.choice(((1, 0), (0, 1), (1, 1), (2, 2), (3, 0), (1, -1)))
    own = d.h
    if after < 0:
        less = d.h.dims[axis] + Extent.number(after)
        own = View(dims=with_extent(d.h.dims, axis, less), args=(d.h,), python=PASSED, place=list)
    args: list[Node] = []
    if before:
        args.append(_zeros(with_extent(own.dims, axis, Extent.number(before))))
    args.append(own)
    if after > 0:
        args.append(_zeros(with_extent(own.dims, axis, Extent.number(after))))
    pads = ", ".join(["0, 0"] * (rank - 1 - axis) + [f"{before}, {after}"])
    total = own.dims[axis] + Extent.number(before + max(0, after))
    d.ops.append("pad")
    return Joined(
        dims=with_extent(d.h.dims, axis, total), args=tuple(args), axis=axis,
        python=f"F.pad({{{int(before > 0)}}}, ({pads}))",
    )  # fmt: skip


def _zeros(dims: tuple[Extent, ...]) -> Node:
    return Each(dims=dims, python="0.0", c="0.0f")


def gated(d: Draw) -> Node:
    rank = len(d.h.dims)
    axis = d.rng.choice((rank - 1, min(1, rank - 1)))
    if not d.divides(d.h.dims[axis], 2) or rank < 2:
        raise Dull
    half = d.h.dims[axis] / 2
    dims = with_extent(d.h.dims, axis, half)
    a = View(dims=dims, args=(d.h,), python=PASSED, place=list)
    b = View(dims=dims, args=(d.h,), python=PASSED, place=_placed(axis, f"@ + {half.text}"))
    said = "-1" if axis == rank - 1 else str(axis)
    d.ops.append("glu")
    return d.each("{0} * sigmoid({1})", f"F.glu({{0}}, dim={said})", a, b)


def shuffled(d: Draw) -> Node:
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


def enlarged(d: Draw) -> Node:
    if not d.images:
        raise Dull
    n, c, h, w = d.h.dims
    by = d.rng.choice((2, 4))
    return _moved(
        d, f'F.interpolate({{0}}, scale_factor={by}, mode="nearest")',
        lambda p: [p[0], p[1], f"{p[2]} / {by}", f"{p[3]} / {by}"], (n, c, h * by, w * by),
        "interpolate",
    )  # fmt: skip
