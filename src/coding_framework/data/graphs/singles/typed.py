"""What gives booleans or whole numbers."""

from __future__ import annotations

from typing import cast

from coding_framework.data.graphs.draw import Draw, Dull
from coding_framework.data.graphs.nodes import ONE, Each, Extent, Given, Kind, Node
from coding_framework.data.graphs.singles.values import new_input

_SIGNS = (">", "<", ">=", "<=")
_AMONG_POSITIVE = ("0.5", "1.0", "0.25", "1.5")
_NUMBERS = ("0.5", "0.0", "0", "1.0", "-0.5", "-1", "0.25", "1e-6", "2")


def _of(d: Draw, kind: str, c: str, python: str, *args: Node) -> Each:
    found = d.each(c, python, *args)
    found.dtype = cast(Kind, kind)
    return found


def _beside(d: Draw) -> tuple[Extent, ...]:
    """The axes of another tensor, the same ones or some of them of one element."""
    dims = d.h.dims
    if d.rng.random() < 0.5:
        return dims
    return tuple(ONE if d.rng.random() < 0.45 else e for e in dims)


def compared(d: Draw) -> Node:
    """Which elements are larger than a number, or than those of another tensor."""
    rng, sign = d.rng, d.rng.choice(_SIGNS)
    positive = isinstance(d.h, Given) and d.h.low is not None
    number = rng.choice(_AMONG_POSITIVE if positive else _NUMBERS)
    as_c = f"{float(number)!r}f"
    d.ops.append("compare")
    form = rng.random()
    if form < 0.45:
        return _of(d, "bool", f"{{0}} {sign} {as_c}", f"{{0}} {sign} {number}", d.h)
    if form < 0.7:
        y = new_input(d, _beside(d))
        return _of(d, "bool", f"{{0}} {sign} {{1}}", f"{{0}} {sign} {{1}}", d.h, y)
    most = abs(float(number)) + 0.5
    c, python = rng.choice((
        (f"{{0}} > -1.0f && {{0}} < {most}f", f"({{0}} > -1.0) & ({{0}} < {most})"),
        (f"{{0}} < -1.0f || {{0}} > {most}f", f"({{0}} < -1.0) | ({{0}} > {most})"),
        (f"!({{0}} {sign} {as_c})", f"~({{0}} {sign} {number})"),
        (f"!({{0}} {sign} {as_c})", f"torch.logical_not({{0}} {sign} {number})"),
    ))  # fmt: skip
    return _of(d, "bool", c, python, d.h)


def made_whole(d: Draw) -> Node:
    """Floats as whole numbers, which nothing says of those that none holds."""
    if not isinstance(d.h, Given):
        raise Dull
    d.h.low = 0.1
    said = d.pick("{0}.long()", "{0}.to(torch.int64)", "{0}.long()")
    d.ops.append("long")
    return _of(d, "int64", "(int64_t){0}", said, d.h)


def of_whole_numbers(d: Draw) -> Node:
    """Arithmetic and comparisons of whole numbers."""
    rng = d.rng
    d.inputs.clear()
    high = Extent.number(rng.choice((9, 12, 20)))
    y = d.input(d.x.dims, "in0", dtype="int64", high=high)
    k = rng.choice((2, 3, 4, 7, 8))
    d.ops.append("integer")
    if rng.random() < 0.4:
        z = d.input(_beside(d), "in1", dtype="int64", high=high)
        kind, c, python = rng.choice((
            ("bool", "{0} == {1}", "{0} == {1}"),
            ("bool", "{0} < {1}", "{0} < {1}"),
            ("bool", "{0} >= {1}", "{0} >= {1}"),
            ("int64", "{0} + {1}", "{0} + {1}"),
            ("int64", f"{{0}} * {k} + {{1}}", f"{{0}} * {k} + {{1}}"),
        ))  # fmt: skip
        return _of(d, kind, c, python, y, z)
    kind, c, python = rng.choice((
        ("bool", f"{{0}} != {k}", f"{{0}} != {k}"),
        ("bool", f"{{0}} == {k}", f"{{0}} == {k}"),
        ("bool", f"{{0}} < {k}", f"{{0}} < {k}"),
        ("int64", f"{{0}} % {k}", f"{{0}} % {k}"),
        ("int64", f"{{0}} / {k}", f"{{0}} // {k}"),
        ("int64", f"{{0}} / {k}", f'torch.div({{0}}, {k}, rounding_mode="floor")'),
        ("int64", f"{{0}} + {k}", f"{{0}} + {k}"),
        ("int64", f"{{0}} > {k} ? {k} : {{0}}", f"{{0}}.clamp(max={k})"),
    ))  # fmt: skip
    return _of(d, kind, c, python, y)
