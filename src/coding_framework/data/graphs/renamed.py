"""A graph's extents by names that say no more than its operations: n0, n1, ... in the order in
which they are first read, one for the axes that an operation makes equal.

Whoever is asked for an operation sees lengths, and not that one was half of another in the module
from which it was taken, or that two were equal there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from coding_framework.data.graphs.nodes import (
    ONE,
    Each,
    Extent,
    Given,
    Graph,
    Head,
    Node,
    Size,
    View,
)

_HELPER = re.compile(r"^__device__ .*?^}\n", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d+")
_SHIFTED = re.compile(r"@\d+ \+ \d+")
"""A place of an axis that other arguments tell."""


def renamed(graph: Graph) -> Graph:
    """The graph with these names. Raises ValueError where a view or an expression says a length by
    its name."""
    return _Renaming(graph).graph()


def renamed_text(code: str, graph: Graph) -> str:
    """The same of a kernel's file, where each axis of an input is a size of its own or is made of
    such. Raises ValueError where one is not."""
    names: dict[str, str] = {}
    for given in graph.inputs:
        if given.c_name in graph.sizes:
            raise ValueError(f"{given.c_name} is a tensor and a size")
        texts = [dim.text for dim in given.dims if dim.text in graph.sizes]
        if len({*texts}) < len(texts):
            raise ValueError(f"two axes of {given.c_name} are one size")
        for text in texts:
            names.setdefault(text, f"n{len(names)}")
    for dim in (dim for given in graph.inputs for dim in given.dims):
        if not {name for part, _ in dim.terms for name in part} <= {*names}:
            raise ValueError(f"{dim.text} has a size that is no axis")
    if not names:
        return code
    word = re.compile(rf"(?<![\w.])({'|'.join(names)})\b(?!\.def)")

    def told(text: str) -> str:
        return word.sub(lambda found: names[found[0]], text)

    body, end, module = code.partition("PYBIND11_MODULE")
    helpers = _HELPER.findall(body)
    parts = [told(part) for part in _HELPER.split(body)]
    between = [*helpers, ""]
    return "".join(a + b for a, b in zip(parts, between, strict=True)) + end + module


class _Renaming:
    """Axes of inputs are variables, and those that an operation makes equal are one."""

    def __init__(self, old: Graph) -> None:
        self.old = old
        self.values: dict[str, tuple[int, ...]] = {}
        self.same: dict[str, str] = {}
        """Variable -> one that it is equal to."""
        self.made: dict[int, Node] = {}

    def graph(self) -> Graph:
        """Raises ValueError."""
        words = re.compile(rf"(?<![\w.{{])({'|'.join(self.old.sizes)})\b")
        for node in self.old.output.walk():
            if isinstance(node, Each) and words.search(node.c):
                raise ValueError(f"{node.c} says a length")
        inputs = [self._node(given) for given in self.old.inputs]
        output = self._node(self.old.output)
        names: dict[str, str] = {}
        others = [node for node in output.walk() if isinstance(node, Given)]
        for given in (*inputs, *others):  # those that tell a length, and are not read
            for dim in given.dims:
                for variable in _variables(dim):
                    names.setdefault(self._one(variable), f"n{len(names)}")
        sizes = {
            name: Size(name, self.values[variable])  # type: ignore[arg-type] # six of them
            for variable, name in names.items()
        }
        for node in {id(n): n for n in (*inputs, *output.walk())}.values():
            node.dims = tuple(self._said(dim, names) for dim in node.dims)
        own = tuple(node for node in inputs if isinstance(node, Given))
        return replace(self.old, output=output, inputs=own, sizes=sizes, layers=())

    def _said(self, dim: Extent, names: dict[str, str]) -> Extent:
        found = Extent(())
        for variables, factor in dim.terms:
            one = Extent.number(1) * factor
            for variable in variables:
                one = one * Extent.of(names[self._one(variable)])
            found = found + one
        return found

    # --- which axes are equal ---

    def _one(self, variable: str) -> str:
        while variable in self.same:
            variable = self.same[variable]
        return variable

    def _equal(self, a: Extent, b: Extent) -> None:
        """They are one from now on."""
        if a.is_one != b.is_one:
            raise ValueError("an axis of one element beside another")
        mine, theirs = _bare(a), _bare(b)
        if mine and theirs:
            left, right = self._one(mine), self._one(theirs)
            if self.values[left] != self.values[right]:
                raise ValueError(f"{left} and {right} differ")
            if left != right:
                self.same[right] = left
        elif self._known(a) != self._known(b):
            raise ValueError(f"{a.text} beside {b.text}")

    def _known(self, dim: Extent) -> dict[tuple[str, ...], Fraction]:
        return {tuple(sorted(map(self._one, names))): by for names, by in dim.terms}

    def _aligned(self, all_dims: Sequence[Sequence[Extent]]) -> tuple[Extent, ...]:
        """Of tensors that are broadcast."""
        rank = max(map(len, all_dims))
        found = []
        for axis in range(-rank, 0):
            here = [d[axis] for d in all_dims if len(d) >= -axis and not d[axis].is_one]
            if not here:
                found.append(ONE)
                continue
            for other in here[1:]:
                self._equal(here[0], other)
            found.append(here[0])
        return tuple(found)

    # --- nodes ---

    def _node(self, node: Node) -> Node:
        """Its copy, whose extents are of variables."""
        if id(node) not in self.made:
            args = tuple(map(self._node, node.args))
            self.made[id(node)] = replace(node, args=args, dims=self._dims(node, args))
        return self.made[id(node)]

    def _dims(self, node: Node, args: tuple[Node, ...]) -> tuple[Extent, ...]:
        if isinstance(node, Given):
            return tuple(self._variable(dim) for dim in node.dims)
        if isinstance(node, Each):
            if not args:
                raise ValueError("a constant tensor by itself")
            return self._each(node, args)
        if isinstance(node, View):
            return self._view(node, args)
        if isinstance(node, Head):
            return self._head(node, args)
        raise ValueError("tensors one behind the other")

    def _variable(self, dim: Extent) -> Extent:
        if dim.is_one:
            return ONE
        name = f"v{len(self.values)}"
        self.values[name] = tuple(dim.value(self.old.at(case)) for case in range(6))
        return Extent.of(name)

    def _each(self, node: Node, args: tuple[Node, ...]) -> tuple[Extent, ...]:
        found = list(self._aligned([a.dims for a in args]))
        for axis, dim in enumerate(node.dims):  # one-hot classes
            if _NUMBER.fullmatch(dim.text) and found[axis].is_one:
                found[axis] = dim
        return tuple(found)

    def _view(self, node: View, args: tuple[Node, ...]) -> tuple[Extent, ...]:
        arg, *others = args
        own = [f"@{axis}" for axis in range(len(node.dims))]
        there = node.place(own)
        found = [ONE if dim.is_one else None for dim in node.dims]
        for axis, text in enumerate(there):
            if text in own:
                found[own.index(text)] = arg.dims[axis]
            elif text != "0" and not _SHIFTED.fullmatch(text):
                raise ValueError(f"a view at {text}")
        told = {
            dim.text: new.dims[axis]
            for new, old in zip(others, node.args[1:], strict=True)
            for axis, dim in enumerate(old.dims)
        }
        for axis, dim in enumerate(node.dims):
            if found[axis] is None:
                found[axis] = told.get(dim.text) or (dim if _NUMBER.fullmatch(dim.text) else None)
        if any(dim is None for dim in found):
            raise ValueError("a view with an axis of its own")
        return tuple(dim for dim in found if dim is not None)

    def _head(self, node: Head, args: tuple[Node, ...]) -> tuple[Extent, ...]:
        x, *others = (a.dims for a in args)
        if node.kind == "reduce":
            return tuple(
                ONE if axis in node.axes else dim
                for axis, dim in enumerate(x)
                if node.keepdim or axis not in node.axes
            )
        if node.kind in ("row", "scan"):
            for dims in others:
                self._equal(x[node.axes[0]], dims[-1])
            return tuple(x)
        if node.kind == "linear":
            self._equal(x[-1], others[0][1])
            for bias in others[1:]:
                self._equal(others[0][0], bias[0])
            return (*x[:-1], others[0][0])
        if node.kind == "product":
            (y,) = others
            turned = node.name == "transposed"
            for a, b in zip(x[:-2], y[:-2], strict=True):
                self._equal(a, b)
            self._equal(x[-1], y[-1 if turned else -2])
            return (*x[:-1], y[-2 if turned else -1])
        if node.kind == "pick":
            (index,) = others
            if node.name == "of_table":
                return (*index, *x[1:])
            if node.name == "of_axis":
                self._equal(x[0], index[0])
                return (x[0], *[ONE] * (len(node.dims) - 2), x[-1])
            if node.name == "of_rows":
                self._equal(x[0], index[0])
                return (*index, *x[2:])
            for a, b in zip(x[:-1], index, strict=False):
                self._equal(a, b)
            return tuple(index)
        if node.kind == "scatter":
            rows, onto = others
            for a, b in zip((*x, *onto[1:]), rows, strict=True):
                self._equal(a, b)
            return tuple(onto)
        raise ValueError(f"a {node.kind}")


def _bare(dim: Extent) -> str | None:
    """The variable that it is."""
    names = _variables(dim)
    return names[0] if len(names) == 1 and dim == Extent.of(names[0]) else None


def _variables(dim: Extent) -> list[str]:
    return [name for names, _ in dim.terms for name in names]
