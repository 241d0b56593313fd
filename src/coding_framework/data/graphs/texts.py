"""Pieces of C: expressions with brackets where they are needed, places in memory, coordinates."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coding_framework.data.graphs.nodes import Extent, Places
from coding_framework.data.modules.kernels import lowering


def texts_of(dims: Sequence[Extent]) -> list[str]:
    return [d.text for d in dims]


def times(dims: Sequence[Extent]) -> Extent:
    found = Extent.number(1)
    for dim in dims:
        found = found * dim
    return found


def elements_of(dims: Sequence[Extent]) -> str:
    """How many elements a tensor has."""
    return lowering.product_of([d.factor for d in dims])


def bracketed(text: str) -> str:
    """As an operand."""
    if re.fullmatch(r"[\w.]+(\[[^\[\]]*\])?", text):
        return text
    if re.fullmatch(r"\w*\(.*\)", text) and _closes_last(text):
        return text
    return f"({text})"


def filled(template: str, values: Sequence[str], places: Places) -> str:
    """An expression with its arguments, in brackets where C would read something else."""

    def argument(match: re.Match[str]) -> str:
        if match[1][0] == "i":
            return places[int(match[1][1:])]
        text = values[int(match[1])]
        before = template[: match.start()].rstrip()[-1:]
        after = template[match.end() :].lstrip()[:1]
        return f"({text})" if _binds(text) <= max(_BESIDE[before], _BESIDE[after] - 1) else text

    return re.sub(r"\{(i?\d)\}", argument, template)


_BESIDE = {
    "": -1,
    "(": -1,
    ",": -1,
    ")": 0,
    ";": 0,
    "?": 0,
    ":": 0,
    "&": 0,
    "|": 0,
    "!": 1,
    ">": 1,
    "<": 1,
    "=": 1,
    "+": 1,
    "-": 2,
    "*": 3,
    "/": 3,
    "%": 3,
}
"""What an expression beside this mark must bind more than (after it: by one less)."""


def _binds(text: str) -> int:
    """How its outermost operator binds: 0 a choice, 1 comparison, 2 a sum, 3 a product, 4 none."""
    depth, found = 0, 4
    for n, mark in enumerate(text):
        depth += (mark in "([") - (mark in ")]")
        if (depth == 0 and text[n - 1 : n] == " ") or (depth == 0 and n == 0 and mark == "-"):
            found = min(
                found, {"?": 0, "<": 1, ">": 1, "=": 1, "+": 2, "-": 2, "*": 3, "/": 3}.get(mark, 4)
            )
    return found


def _closes_last(text: str) -> bool:
    """Whether the first bracket is closed by the last character."""
    depth = 0
    for n, mark in enumerate(text):
        depth += (mark == "(") - (mark == ")")
        if mark == ")" and depth == 0:
            return n == len(text) - 1
    return False


def unbracketed(text: str) -> str:
    return text[1:-1] if text.startswith("(") and _closes_last(text) else text


def linear(places: Places, dims: Sequence[Extent]) -> str:
    """The place in memory of an element."""
    return lowering.linear(places, [d.factor for d in dims])


def broadcast(places: Places, dims: Sequence[Extent]) -> list[str]:
    """The coordinates of an argument of these extents."""
    own = list(places)[len(places) - len(dims) :]
    return ["0" if dim.is_one else place for place, dim in zip(own, dims, strict=True)]


def coordinates(dims: Sequence[Extent]) -> list[str]:
    """Those of the element `i`, whether they are read or not."""
    return split_index("i", [f"i{a}" for a in range(len(dims))], dims)


def split_index(index: str, names: Sequence[str], dims: Sequence[Extent]) -> list[str]:
    """The coordinates of a flat index; none where it is the only one."""
    if len(names) == 1 and names[0] == index:
        return []
    lines = []
    for axis, name in enumerate(names):
        if dims[axis].is_one:
            lines.append(f"int {name} = 0;")
            continue
        inner = elements_of(dims[axis + 1 :])
        by = "" if inner == "1" else f" / {bracketed(inner)}"
        before = any(not d.is_one for d in dims[:axis])
        turn = f" % {dims[axis].factor}" if before else ""
        lines.append(f"int {name} = {index}{by}{turn};")
    return lines


def used_lines(body: list[str]) -> list[str]:
    """Without the coordinates that nothing reads."""
    while True:
        text = "\n".join(body)
        named = [re.match(r" *int (j\d+) = ", line) for line in body]
        kept = [
            line
            for line, found in zip(body, named, strict=True)
            if not found or len(re.findall(rf"\b{found[1]}\b", text)) > 1
        ]
        if len(kept) == len(body):
            return body
        body = kept


def used_coordinates(lines: list[str], last: str) -> list[str]:
    """The lines and the last one, without coordinates that nothing reads."""
    while True:
        text = "\n".join((*lines, last))
        kept = [
            line
            for line in lines
            if not (named := re.match(r"int (\w+) = ", line))
            or len(re.findall(rf"\b{named[1]}\b", text)) > 1
        ]
        if len(kept) == len(lines):
            return [*lines, last]
        lines = kept
