"""CUDA text: C types, whole-number arithmetic on texts, and the body of a kernel while it is
written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from coding_framework.data.graph import Extent

Places = Sequence[str]
"""The coordinates of an element, in C."""


@dataclass(frozen=True, slots=True)
class CType:
    """How a dtype is kept and computed with."""

    kept: str
    """In memory."""
    computed: str
    """In registers: half types compute in float."""
    torch: str
    """The constant of the host code."""
    suffix: str = ""
    """Of functions and literals: `expf`, `1.0f`."""


C_TYPES = {
    "float32": CType("float", "float", "torch::kFloat32", "f"),
    "float64": CType("double", "double", "torch::kFloat64"),
    "float16": CType("at::Half", "float", "torch::kFloat16", "f"),
    "bfloat16": CType("at::BFloat16", "float", "torch::kBFloat16", "f"),
    "int64": CType("int64_t", "int64_t", "torch::kInt64"),
    "int32": CType("int", "int", "torch::kInt32"),
    "int16": CType("int16_t", "int", "torch::kInt16"),
    "int8": CType("int8_t", "int", "torch::kInt8"),
    "uint8": CType("uint8_t", "int", "torch::kUInt8"),
    "bool": CType("bool", "bool", "torch::kBool"),
}
HALVES = ("float16", "bfloat16")
FLOATS = ("float32", "float64", *HALVES)
_ATOM = re.compile(r"[\w.]+|[A-Za-z_][\w.]*(?:\[[^\[\]]*\])+|[A-Za-z_]\w*\([^()]*\)")


def atom(text: str) -> str:
    """The expression as an operand: in parentheses unless it is a name, a number, a read or a
    call."""
    return text if _ATOM.fullmatch(text) else f"({text})"


def plus(one: str, other: str) -> str:
    if one == "0":
        return other
    if other == "0":
        return one
    if one.isdigit() and other.isdigit():
        return str(int(one) + int(other))
    return f"{one} + {other}"


def minus(one: str, other: str) -> str:
    return one if other == "0" else f"{one} - {atom(other)}"


def times(one: str, other: str) -> str:
    if "0" in (one, other):
        return "0"
    if one == "1":
        return other
    if other == "1":
        return one
    return f"{atom(one)} * {atom(other)}"


def over(one: str, other: str) -> str:
    return one if other == "1" else f"{atom(one)} / {atom(other)}"


def literal(value: Any, dtype: str) -> str:
    """A number as a literal of the type that a dtype computes in."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype not in FLOATS:
        return f"{int(value)}L" if dtype == "int64" else str(int(value))
    suffix = C_TYPES[dtype].suffix
    number = float(value)
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    return f"{number!r}{suffix}"


def broadcast(shape: Sequence[Extent], places: Places) -> list[str]:
    """Places of a smaller tensor in the places of a larger one."""
    behind = places[len(places) - len(shape) :]
    return ["0" if d == 1 else p for d, p in zip(shape, behind, strict=True)]


def flat(places: Places, dims: Sequence[str]) -> str:
    """The place in memory of an element of a contiguous tensor."""
    index = "0"
    for place, dim in zip(places, dims, strict=True):
        index = plus(times(index, dim), place)
    return index


class Body:
    """The lines of a kernel while they are written: what they declare, read and need.

    extent: gives a size its name or number in C.
    """

    def __init__(self, extent: Callable[[Extent], str]) -> None:
        self.lines: list[str] = []
        self.reads: dict[str, str] = {}
        """Tensors that are read, with their C types."""
        self.index: tuple[tuple[str, ...], tuple[str, ...], str] | None = None
        """(places, dims, name): where the places are the element `name` of a tensor of these
        dims."""
        self.numbers: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
        """(places, dims) -> the number that was split into these places."""
        self.instead: Callable[[Any, Places], str | None] | None = None
        """(tensor in memory, places) -> where an element is read instead; None: there."""
        self._extent = extent
        self.depth = 0
        """Blocks that are open."""
        self._names: dict[str, int] = {}
        self._reserved: set[str] = set()
        self.declared: set[str] = set()
        self._kept: list[dict[Any, str]] = [{}]

    def reserve(self, names: Sequence[str]) -> None:
        """Names that mean something else here."""
        self._reserved.update(names)

    def extent(self, size: Extent) -> str:
        return self._extent(size)

    def dims(self, shape: Sequence[Extent]) -> tuple[str, ...]:
        return tuple(map(self._extent, shape))

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def name(self, wish: str, own: bool = False) -> str:
        """The wish, with a number behind it where it is taken. own: it is reserved for this."""
        count = self._names.get(wish, 0) + 1
        name = wish if count == 1 else f"{wish}_{count}"
        while (name in self._reserved and not (own and count == 1)) or name in self.declared:
            count += 1
            name = f"{wish}_{count}"
        self._names[wish] = count
        self.declared.add(name)
        return name

    def let(self, c_type: str, wish: str, value: str, own: bool = False) -> str:
        """Declare a constant; its name."""
        name = self.name(wish, own)
        self.line(f"const {c_type} {name} = {value};")
        return name

    def named(self, c_type: str, wish: str, value: str) -> str:
        """The name of a value: a constant, unless it is one already."""
        return value if re.fullmatch(r"[A-Za-z_]\w*", value) else self.let(c_type, wish, value)

    def variable(self, c_type: str, wish: str, value: str | None = None) -> str:
        name = self.name(wish)
        self.line(f"{c_type} {name};" if value is None else f"{c_type} {name} = {value};")
        return name

    @contextmanager
    def block(self, head: str, end: str = "") -> Iterator[None]:
        """Lines within braces, and what stands behind them. What is kept within is not known
        there."""
        self.line(f"{head} {{")
        self.depth += 1
        self._kept.append({})
        try:
            yield
        finally:
            self._kept.pop()
            self.depth -= 1
            self.line(f"}}{end}")

    @contextmanager
    def loop(self, wish: str, count: str, start: str = "0", step: str = "1") -> Iterator[str]:
        """A loop over whole numbers; none where the count is 1."""
        if count == "1" and start == "0":
            yield "0"
            return
        name = self.name(wish)
        next_one = f"{name}++" if step == "1" else f"{name} += {step}"
        with self.block(f"for (int {name} = {start}; {name} < {count}; {next_one})"):
            yield name

    def once(self, key: Any, make: Callable[[], str]) -> str:
        """What `make` gives, made once in this block and those within it."""
        for kept in reversed(self._kept):
            if key in kept:
                return str(kept[key])
        made = self._kept[-1][key] = make()
        return made

    def split(self, index: str, dims: Sequence[str], wish: str) -> list[str]:
        """The coordinates of an element by its place in memory, each declared."""
        dims = tuple(dims)
        free = [k for k, dim in enumerate(dims) if dim != "1"]
        places = ["0"] * len(dims)
        rest = index
        for k in reversed(free):
            if k == free[0]:
                places[k] = self.let("int", f"{wish}{k}", rest) if rest != index else rest
            else:
                places[k] = self.let("int", f"{wish}{k}", f"{atom(rest)} % {dims[k]}")
                rest = f"{rest} / {dims[k]}"
        self.numbers[tuple(places), dims] = index
        return places

    def flat(self, places: Places, dims: Sequence[str]) -> str:
        """`flat`, by the number of what was split where the last places are of one number."""
        for cut in range(len(places) - 1):
            number = self.numbers.get((tuple(places[cut:]), tuple(dims[cut:])))
            if number is not None:
                together = reduce(times, dims[cut:])
                return flat([*places[:cut], number], [*dims[:cut], together])
        return flat(places, dims)


def without_unused(lines: Sequence[str]) -> list[str]:
    """The lines without constants that nothing reads."""
    kept = list(lines)
    while True:
        words: dict[str, int] = {}
        for line in kept:
            for word in re.findall(r"[A-Za-z_]\w*", line):
                words[word] = words.get(word, 0) + 1
        left = [
            line
            for line in kept
            if (found := re.match(r"\s*const [\w:]+ (\w+) = ", line)) is None or words[found[1]] > 1
        ]
        if len(left) == len(kept):
            return left
        kept = left
