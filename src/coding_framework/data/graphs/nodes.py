"""Computation graphs of modules: extents, and the nodes that a PyTorch source and a kernel are
both written from.

    grammar draws a Graph -> source (PyTorch), cuda (kernels) -> examples (a Task and its kernel)

A node is a tensor: an input or parameter, an element for each place (`Each`), the elements of
another at other places (`View`, `Joined`), or what takes a loop (`Head`). The last alone and what
several read become kernels; the others are written where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import Literal

Sizes = Mapping[str, int]
Places = Sequence[str]
"""The coordinates of an element, in C."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The length of an axis: a sum of products of named sizes, with factors."""

    terms: tuple[tuple[tuple[str, ...], Fraction], ...]

    @staticmethod
    def of(name: str) -> Extent:
        return Extent((((name,), Fraction(1)),))

    @staticmethod
    def number(value: int) -> Extent:
        return Extent((((), Fraction(value)),))

    def __add__(self, other: Extent) -> Extent:
        found = dict(self.terms)
        for names, factor in other.terms:
            found[names] = found.get(names, Fraction(0)) + factor
        return Extent(tuple((n, f) for n, f in found.items() if f))

    def __mul__(self, other: Extent | int | Fraction) -> Extent:
        if isinstance(other, (int, Fraction)):
            return Extent(tuple((n, f * other) for n, f in self.terms if other))
        found: dict[tuple[str, ...], Fraction] = {}
        for a, f in self.terms:
            for b, g in other.terms:
                names = tuple(sorted((*a, *b)))
                found[names] = found.get(names, Fraction(0)) + f * g
        return Extent(tuple(found.items()))

    def __truediv__(self, number: int) -> Extent:
        return self * Fraction(1, number)

    def value(self, sizes: Sizes) -> int:
        """Of these sizes. Raises ValueError where it is no integer."""
        total = Fraction(0)
        for names, factor in self.terms:
            for name in names:
                factor *= sizes[name]
            total += factor
        if total.denominator != 1:
            raise ValueError(f"{self.text} is no integer")
        return int(total)

    @property
    def text(self) -> str:
        """In C, and with `//` for `/` in Python. Divided at the end: a part alone may be uneven."""
        by = lcm(*(factor.denominator for _, factor in self.terms))
        said = ""
        for names, factor in self.terms:
            number, parts = abs(int(factor * by)), list(names)
            if number != 1 or not parts:
                parts.insert(0, str(number))
            one = " * ".join(parts)
            sign = "-" if factor < 0 else "+"
            said = f"{said} {sign} {one}" if said else (f"-{one}" if factor < 0 else one)
        if by > 1:
            return f"({said}) / {by}" if len(self.terms) > 1 else f"{said} / {by}"
        return said or "0"

    @property
    def factor(self) -> str:
        """As a factor of a product."""
        return f"({self.text})" if " " in self.text else self.text

    @property
    def is_one(self) -> bool:
        return self.text == "1"


ONE = Extent.number(1)
PASSED, PASSED_BOTH = "{0}", "{0}, {1}"
"""The Python of nodes inside one call, which the last of them says."""
MOST_POSITIVE = 2.0
"""The largest value of an input that is positive."""


def with_extent(dims: Sequence[Extent], axis: int, extent: Extent) -> tuple[Extent, ...]:
    """The extents with another one in the place of an axis."""
    return tuple(extent if a == axis else e for a, e in enumerate(dims))


@dataclass(eq=False)
class Parts:
    """Several tensors that one expression of a tensor gives."""

    python: str
    names: tuple[str, ...]
    """What people call them, all of them."""


@dataclass(eq=False)
class Node:
    """A tensor of the graph. python: its expression, {0}, {1}, ... are its arguments."""

    dims: tuple[Extent, ...]
    args: tuple[Node, ...] = ()
    python: str = ""
    names: tuple[str, ...] = ()
    """What people call it."""
    part: tuple[Parts, int] | None = None
    """(what gives it and others, its number among them)."""
    plan: str = ""
    """Its own expression, where another node's `python` says a call that it is a part of."""

    def walk(self) -> Iterator[Node]:
        """This one and all that it is made of, each once, arguments first."""
        seen: set[int] = set()
        stack: list[tuple[Node, bool]] = [(self, False)]
        while stack:
            node, done = stack.pop()
            if done:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack += [(a, False) for a in reversed(node.args)]


Kind = Literal["float32", "int64", "bool"]


@dataclass(eq=False)
class Given(Node):
    """An input, or a parameter of the module."""

    c_name: str = ""
    dtype: Kind = "float32"
    high: Extent | None = None
    """Of labels: the number of classes."""
    low: float | None = None
    """Of what is positive: its smallest value."""


@dataclass(eq=False)
class Each(Node):
    """A value for each place. c: its expression of {0}, {1}, ... and of the coordinates {i0},
    {i1}, ...; arguments are broadcast."""

    c: str = ""
    dtype: Kind = "float32"
    """Of the tensor, where it is the graph's last."""

    @property
    def is_plain(self) -> bool:
        """Whether it costs next to nothing to make it again."""
        return "(" not in self.c


@dataclass(eq=False)
class View(Node):
    """Elements of another tensor at other places. place: coordinates here -> there."""

    place: Callable[[Places], list[str]] = field(default=list)


@dataclass(eq=False)
class Joined(Node):
    """Tensors one after the other along an axis."""

    axis: int = 0


HeadKind = Literal["reduce", "row", "linear", "product", "convolution", "scan", "pick", "scatter"]


@dataclass(eq=False)
class Head(Node):
    """What loops over elements of its arguments."""

    kind: HeadKind = "reduce"
    name: str = ""
    """Which of its kind: "sum", "softmax"."""
    axes: tuple[int, ...] = ()
    keepdim: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Size:
    """A named size: of the emulator's three cases and a GPU's three."""

    python: str
    values: tuple[int, int, int, int, int, int]
    c: str = ""
    """Of a part of another size: its expression in C, by which it is cut unequally as PyTorch cuts
    an odd length."""


@dataclass(frozen=True, slots=True)
class Layer:
    """An attribute of the module: `self.attribute = text`, where {name} are its arguments."""

    attribute: str
    text: str
    given: tuple[Given, ...]


Constant = float | int | tuple[float | int, ...]
"""A number, or one of each of the six cases."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A module. constants: arguments of the constructor that are no sizes, by name."""

    name: str
    output: Node
    inputs: tuple[Given, ...]
    layers: tuple[Layer, ...]
    sizes: Mapping[str, Size]
    """By their names in C."""
    constants: Mapping[str, Constant]
    ops: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...] = ()
    """(C type, name) of the numbers that its kernel may take behind the tensors, all or none."""
    told: Mapping[str, str] = field(default_factory=dict)
    """Sizes that one of them tells and no tensor has."""

    def at(self, case: int) -> dict[str, int]:
        """The sizes of a case: 0 to 2 of the emulator, 3 to 5 of a GPU."""
        return {name: size.values[case] for name, size in self.sizes.items()}

    @property
    def parameters(self) -> tuple[Given, ...]:
        return tuple(p for layer in self.layers for p in layer.given)
