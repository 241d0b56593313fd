"""A module as a graph of ATen operations with symbolic sizes: what `read` makes and `lower` takes.

It is a thin view of the graph that a trace gives. Arguments stand under the names of the
operation's schema, defaults filled in; sizes are integers or sympy expressions of the axes of the
module's arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Extent = Any
"""The length of an axis, or another number that depends on the sizes: an int or a sympy
expression."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of a tensor; dtype as `torch.float32` is called, without `torch.`."""

    shape: tuple[Extent, ...]
    dtype: str


@dataclass(eq=False)
class Node:
    """An operation, or an argument of the module. Its identity is that of the object."""

    op: str
    """"relu.default", "getitem", "constant", or "argument"."""
    name: str
    """A C identifier, which no other node has."""
    types: tuple[TensorType, ...]
    """Of its results: most operations have one."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """By the names of the schema: nodes, numbers, extents, lists of them, None."""
    line: str = ""
    """The line of the module that it comes from."""

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The argument of that name; the default where the schema has none or it is None."""
        found = self.args.get(name)
        return default if found is None else found

    @property
    def base(self) -> str:
        """The operation without its overload: "relu"."""
        return self.op.partition(".")[0]

    @property
    def type(self) -> TensorType:
        """Of its only or its first result."""
        return self.types[0]

    @property
    def inputs(self) -> Iterator[Node]:
        """The nodes among its arguments, once for each place where they stand."""
        yield from _nodes(tuple(self.args.values()))


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _nodes(one)


def replaced(value: Any, instead: Mapping[Node, Node]) -> Any:
    """An argument in which other nodes stand for some."""
    if isinstance(value, Node):
        return instead.get(value, value)
    return [replaced(one, instead) for one in value] if isinstance(value, list) else value


ScalarKind = Literal["bool", "int", "float"]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size without a value: of which axis of which argument it is read, or which number of the
    constructor it is (axis -1)."""

    name: str
    argument: str
    axis: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A module. `arguments` are in the order in which a kernel's `forward` takes them."""

    arguments: tuple[Node, ...]
    """Inputs, then parameters and buffers."""
    scalars: tuple[tuple[str, ScalarKind], ...]
    """The numbers of the constructor, which `forward` takes behind the tensors, all or none."""
    symbols: tuple[Symbol, ...]
    nodes: tuple[Node, ...]
    """Operations, each behind those that it reads."""
    outputs: tuple[Node, ...]
    sizes: Mapping[str, float] = field(default_factory=dict)
    """What each symbol is worth at a GPU's main shape set, where there is one, else at the first:
    by it the form of a kernel is chosen."""
    constants: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Elements of tensors that the module makes from literals, by the names of their nodes."""
    tf32: bool = False
    """Whether products may read factors as TF32: the module asks PyTorch for it."""
