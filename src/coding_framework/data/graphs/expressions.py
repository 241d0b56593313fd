"""The expressions of a graph's elements in C, and what has to be in memory for them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from coding_framework.data.graphs.nodes import (
    Each,
    Extent,
    Given,
    Graph,
    Head,
    Joined,
    Node,
    Places,
    Sizes,
    View,
)
from coding_framework.data.graphs.texts import bracketed, broadcast, filled, linear, texts_of
from coding_framework.data.modules.kernels.lowering import C_TYPES, Join
from coding_framework.data.modules.pointwise import POINTWISE


def _of_catalogue(name: str) -> str:
    """Its expression of `v`, as the kernels of module tasks have it."""
    (statement,) = POINTWISE[name].c
    return statement.removeprefix("{v} = ").removesuffix(";").replace("{v}", "v")


_SHARED = (
    "sigmoid", "silu", "gelu", "hardsigmoid", "square", "mish", "hardswish", "softsign", "selu",
    "gelu_tanh",
)  # fmt: skip
FUNCTIONS = {
    **{name: _of_catalogue(name) for name in _SHARED},
    "softplus": "fmaxf(v, 0.0f) + log1pf(expf(-fabsf(v)))",
    "log_sigmoid": _of_catalogue("logsigmoid"),
    "cube": "v * v * v",
    "elu": "v > 0.0f ? v : expm1f(v)",
    "leaky_relu": "v > 0.0f ? v : 0.1f * v",
    "huber": "fabsf(v) < 1.0f ? 0.5f * v * v : fabsf(v) - 0.5f",
}
"""Functions of one value that a kernel's file defines where it calls them."""
Together = Literal["warp", "block"]
"""Threads that add up what each of them has."""
LIGHT = 4
"""So many values for each place are made again where they are read."""


@dataclass
class Kernel:
    """One kernel while it is written."""

    reads: dict[str, str] = field(default_factory=dict)
    """Name -> C type."""
    lines: list[str] = field(default_factory=list)
    indices: int = 0
    named: dict[str, str] = field(default_factory=dict)
    """What each coordinate that has a name stands for."""

    def index(self, text: str) -> str:
        """A name for a coordinate."""
        if re.fullmatch(r"\w+", text):
            return text
        back = re.fullmatch(r"(j\d+) \+ (\w+)", text)
        if back and self.named.get(back[1], "").endswith(f" - {back[2]}"):
            return self.named[back[1]].removesuffix(f" - {back[2]}")
        for name, known in self.named.items():
            if known == text and f"int {name} = {text};" in self.lines:
                return name
        self.indices += 1
        name = f"j{self.indices}"
        self.named[name] = text
        self.lines.append(f"int {name} = {text};")
        return name


Finish = Callable[[str], str]


class Values:
    """What of a graph is in memory, and the expressions of the rest."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = Counter(id(a) for node in graph.output.walk() for a in node.args)
        self.uses[id(graph.output)] += 1
        self.done: dict[int, str] = {}
        self.kinds: dict[str, str] = {}
        """C types of tensors in memory that are no floats."""
        self.device: list[str] = []
        self.functions: dict[str, None] = {}
        self.joins: dict[tuple[Together, Join], None] = {}
        self.host: list[str] = []
        self.plan: list[str] = []
        """What each tensor is, in the order in which they are made."""
        self.terms: list[Extent] = []
        self.number = 0
        self._open = Kernel()
        """That which is being written."""
        self._own = ""
        """In it, the value of the head that it ends."""
        self.real: Sizes = graph.at(3)

    def _heads(self, node: Node) -> list[Node]:
        """Heads, and what many read, that its expression needs and that are not made."""
        found: list[Node] = []

        def look(one: Node) -> None:
            for a in one.args:
                if isinstance(a, Given) or id(a) in self.done or any(a is f for f in found):
                    continue
                if isinstance(a, Head) or (self.uses[id(a)] > 1 and self._weight(a) > LIGHT):
                    found.append(a)
                else:
                    look(a)

        look(node)
        return found

    def _weight(self, node: Node) -> int:
        """How many values that cost something are made for one of it."""
        if isinstance(node, (Given, Head)) or id(node) in self.done:
            return 0
        own = isinstance(node, Joined) or (isinstance(node, Each) and not node.is_plain)
        several = 2 * (len(node.args) > 3)
        return 2 * own + several + isinstance(node, Each) + sum(map(self._weight, node.args))

    def _ends(self, node: Node, head: Node) -> bool:
        """Whether the head's own kernel can end with it: each value of it makes one of the node."""
        if not isinstance(head, Head) or texts_of(head.dims) != texts_of(node.dims):
            return False
        if head.kind == "scatter":  # a sum is whole when its kernel has ended
            return False
        inside = 0

        def straight(one: Node) -> bool:
            nonlocal inside
            for a in one.args:
                if a is head:
                    inside += 1
                    if not isinstance(one, Each):
                        return False
                elif any(x is head for x in a.walk()) and id(a) not in self.done:
                    same = isinstance(a, Each) and texts_of(a.dims) == texts_of(node.dims)
                    if not same or not isinstance(one, Each) or not straight(a):
                        return False
            return True

        return straight(node) and inside == self.uses[id(head)]

    def _after(self, node: Node, head: Node) -> Finish:
        def finish(v: str) -> str:
            kernel = self._open
            places = [f"i{a}" for a in range(len(node.dims))]
            self.done[id(head)] = "="
            self._own = v
            try:
                return self._value(kernel, node, places)
            finally:
                del self.done[id(head)]

        return finish

    def _value(self, kernel: Kernel, node: Node, places: Places) -> str:
        """Its element at these coordinates."""
        if isinstance(node, Given) or id(node) in self.done:
            if self.done.get(id(node)) == "=":
                return self._own
            name = node.c_name if isinstance(node, Given) else self.done[id(node)]
            kernel.reads[name] = C_TYPES[node.dtype] if isinstance(node, Given) else "float"
            return f"{name}[{linear(places, node.dims)}]"
        if isinstance(node, Each):
            values = [self._value(kernel, a, broadcast(places, a.dims)) for a in node.args]
            for name in FUNCTIONS:
                if re.search(rf"\b{name}\(", node.c):
                    self.functions[name] = None
            return filled(node.c, values, places)
        if isinstance(node, View):
            there = [kernel.index(p) for p in node.place(places)]
            return self._value(kernel, node.args[0], there)
        if isinstance(node, Joined):
            return self._joined(kernel, node, places)
        raise ValueError(f"a head is read before it is made: {node}")

    def _joined(self, kernel: Kernel, node: Joined, places: Places) -> str:
        axis, start = node.axis, Extent(())
        texts: list[tuple[str, str]] = []
        for a in node.args:
            moved = list(places)
            if start.terms:
                moved[axis] = kernel.index(f"{places[axis]} - {start.factor}")
            start = start + a.dims[axis]
            texts.append((start.factor, bracketed(self._value(kernel, a, moved))))
        said = texts[-1][1]
        for end, text in reversed(texts[:-1]):
            said = f"{places[axis]} < {end} ? {text} : {said}"
        return f"({said})"
