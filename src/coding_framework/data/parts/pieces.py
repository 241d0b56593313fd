"""A graph in parts: a reference of one operation and the elementwise ones behind it, as a task."""

from __future__ import annotations

import hashlib
import keyword
import math
import re
from collections import Counter
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from coding_framework.data.graph import Extent, Node
from coding_framework.data.lower.sizes import worth
from coding_framework.data.lower.text import C_TYPES
from coding_framework.data.ops.elementwise import ELEMENTWISE
from coding_framework.data.ops.views import PARTS, RESHAPES, VIEWS
from coding_framework.data.parts.spelling import attribute_of, called, layer_of, spelled
from coding_framework.data.parts.whole import PartsError, Whole, is_alike, is_floating
from coding_framework.reference_model import recorded_definitions, run_reference
from coding_framework.types import PART, Split, Task, TensorSpec, TestCase

MOST_TOGETHER = 5
"""Operations of a part: those before a reduction that are elementwise, it, and those that follow it
so."""
_MOST_FIXED = 256
"""Elements of a constant that the whole makes for its parts."""
_LONG = 80
"""Characters of an expression from which it has a line of its own."""
_NAMES = ("x", "y", "z", "w", "u", "v")
_LIKES = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full")
"""What they are of counts by its shape alone."""
_REDUCTIONS = (
    "sum", "mean", "amax", "amin", "prod", "norm", "linalg_vector_norm", "logsumexp", "softmax",
    "_softmax", "log_softmax", "_log_softmax", "var", "std", "cumsum",
)  # fmt: skip
_BETWEEN = (*VIEWS, *RESHAPES, *PARTS, "cat", "stack", "copy", "select_scatter", "slice_scatter")
"""What computes nothing, and is the whole's."""


@dataclass(frozen=True, slots=True)
class Part:
    """A task, and what its kernel is given in the whole."""

    task: Task
    tensors: tuple[Node, ...]
    """In the order of the kernel's tensors."""
    numbers: tuple[Extent, ...]
    """Those behind them."""
    nodes: tuple[Node, ...]
    """What it computes and others may read; the last one is its output."""

    @property
    def output(self) -> Node:
        return self.nodes[-1]

    @property
    def key(self) -> str:
        """Equal for parts of the same function at the same sizes."""
        return hashlib.sha256(self.task.model_dump_json(exclude={"name"}).encode()).hexdigest()[:16]


def parted(
    whole: Whole, alone: Container[Node] = (), handed: frozenset[Node] = frozenset()
) -> list[Part]:
    """The parts in the order in which they run. alone: nodes that are parts of their own, whatever
    stands before and behind them. handed: nodes of `inlined` that are made outside too, and are
    given to those alone and to each other. Raises PartsError where a step cannot be a task."""
    handed |= _told(whole)
    inline = inlined(whole)
    parts = []
    for number, group in enumerate(_groups(whole, alone, inline, handed)):
        apart = any(node in alone or node in handed for node in group)
        own = inline - handed if apart else inline
        parts.append(_part(whole, group, number, own))
    return parts


def finer(whole: Whole, parts: Sequence[Part]) -> list[Part]:
    """The whole in parts again, in which each operation of these is one, and what they make beside
    it (whole numbers, booleans, constants of the shape) is given to them where it can be."""
    alone = frozenset(node for part in parts for node in part.nodes)
    with suppress(PartsError, ValueError):
        return parted(whole, alone, _made_beside(whole, parts))
    return parted(whole, alone)


def _made_beside(whole: Whole, parts: Sequence[Part]) -> frozenset[Node]:
    """What these parts make themselves, though a kernel could."""
    own, found = inlined(whole), set[Node]()
    wanted = [i for part in parts for node in part.nodes for i in _inputs(node)]
    while wanted:
        node = wanted.pop()
        if node in own and node not in found and node.type.dtype in C_TYPES:
            found.add(node)
            wanted += _inputs(node)
    return frozenset(found)


def _inputs(node: Node) -> list[Node]:
    """Of an operation; of one of its results, where it computes several."""
    if node.op == "getitem" and node["self"].base not in PARTS:
        node = node["self"]
    return [] if node.base in _LIKES else list(node.inputs)


def is_computed(node: Node) -> bool:
    """Whether it may be a part: an operation that has one result, or a result of one with
    several."""
    if node.op == "getitem":
        return node["self"].base not in PARTS
    return len(node.types) == 1 and node.base not in _BETWEEN and node.op != "constant"


def inlined(whole: Whole) -> frozenset[Node]:
    """Nodes that no part hands to another: what depends on no tensor that is given or on its shape
    alone, but for a few numbers that are the same everywhere, and what is not floating. Each part
    that reads one makes it itself."""
    free = _free(whole)
    fixed = {node for node in free if _is_fixed(whole, node)}
    return frozenset(
        node
        for node in whole.graph.nodes
        if (node in free and node not in fixed) or not is_floating(node)
    )


def _free(whole: Whole) -> set[Node]:
    """What depends on no tensor that is given."""
    free: set[Node] = set()
    for node in whole.graph.nodes:
        if all(i in free or i.op == "constant" for i in _inputs(node)):
            free.add(node)
    return free


def _is_fixed(whole: Whole, node: Node) -> bool:
    """Whether it is a few numbers that are the same everywhere, and more than a number."""
    first, *others = (seen[node] for seen in whole.seen)
    return (
        isinstance(first, torch.Tensor)
        and bool(_inputs(node))
        and first.numel() <= _MOST_FIXED
        and all(isinstance(extent, int) for extent in node.type.shape)
        and all(torch.equal(first, other) for other in others)
    )


def _told(whole: Whole) -> frozenset[Node]:
    """Whole numbers and booleans that the module returns, and what shows them."""
    found, wanted = set[Node](), [*whole.graph.outputs]
    free = _free(whole)
    while wanted:
        node = wanted.pop()
        if node.op == "argument" or node in free or is_floating(node) or node in found:
            continue
        found.add(node)
        wanted += [] if is_computed(node) else node.inputs
    return frozenset(found)


def _groups(
    whole: Whole, alone: Container[Node], inline: frozenset[Node], handed: Container[Node]
) -> list[list[Node]]:
    nodes, free = whole.graph.nodes, _free(whole)
    own = {node for node in inline if node not in handed}
    uses = Counter(i for node in nodes if node.base not in _LIKES for i in node.inputs)
    uses.update(whole.graph.outputs)
    groups: list[list[Node]] = []
    ends: dict[Node, list[Node]] = {}
    for node in nodes:
        if not is_computed(node) or node in own or node in free or not uses[node]:
            continue
        before = next(
            (
                ends[one]
                for one in node.inputs
                if one in ends
                and uses[one] == 1
                and one not in alone
                and node not in alone
                and (one in handed) == (node in handed)
            ),
            None,
        )
        if before is not None and _follows(node, before):
            del ends[before[-1]]
            before.append(node)
            groups.remove(before)
        else:
            before = [node]
        groups.append(before)
        ends[node] = before
    return groups


def _follows(node: Node, group: Sequence[Node]) -> bool:
    """Whether a node may be in a part behind these."""
    elementwise = [one.base in ELEMENTWISE for one in group]
    return len(group) < MOST_TOGETHER and (
        node.base in ELEMENTWISE or (node.base in _REDUCTIONS and all(elementwise))
    )


# --- a part's reference ---------------------------------------------------------------------------


def _part(whole: Whole, group: Sequence[Node], number: int, inline: frozenset[Node]) -> Part:
    """Its operations by the names that people use; by their own where that gives something else."""
    try:
        return _Writer(whole, group, number, inline).part()
    except PartsError:
        return _Writer(whole, group, number, inline, plain=True).part()


@dataclass(slots=True)
class _Writer:
    """Writes a part's reference and makes its task."""

    whole: Whole
    group: Sequence[Node]
    number: int
    inline: frozenset[Node]
    """Nodes that it makes itself."""
    plain: bool = False
    names: dict[Node, str] = field(default_factory=dict)
    tensors: list[Node] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    parameters: list[Node] = field(default_factory=list)
    numbers: dict[str, Extent] = field(default_factory=dict)

    def part(self) -> Part:
        for node in self.group:
            text = self._line(node)
            self.names[node] = f"t{len(self.lines)}"
            self.lines.append(f"{self.names[node]} = {text}")
        task = self._task()
        self._check(task)
        tensors = (*self.tensors, *self.parameters)
        return Part(task, tensors, tuple(self.numbers.values()), tuple(self.group))

    def _line(self, node: Node) -> str:
        layer = layer_of(node, self.whole.parameters)
        if layer is None or self.plain:
            return spelled(node, self._text, self.plain)
        text = layer.text
        for name, extent in layer.extents.items():
            text = re.sub(rf"\b{name}\b", self._number(name, extent), text)
        self.layers.append(f"self.{attribute_of(layer)} = {text}")
        self.parameters += layer.parameters
        return f"self.{attribute_of(layer)}({self._text(node[layer.of], layer.of)})"

    def _text(self, value: Any, name: str) -> str:
        """An argument as Python."""
        if isinstance(value, Node):
            return self._tensor(value)
        if isinstance(value, list):
            return f"[{', '.join(self._text(one, name) for one in value)}]"
        if isinstance(value, str) and name == "dtype":
            return f"torch.{value}"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, bool | int | float | str | None):
            return repr(value)
        return f"self.{self._number('n', value)}"

    def _number(self, name: str, extent: Extent) -> str:
        """A number that `Model` is given, by its name."""
        for known, other in self.numbers.items():
            if other == extent:
                return known
        while name in self.numbers or keyword.iskeyword(name):
            name += "_"
        self.numbers[name] = extent
        return name

    def _tensor(self, node: Node) -> str:
        if node in self.names:
            return self.names[node]
        if node in self.inline:
            text = spelled(node, self._text, self.plain)
            if len(text) > _LONG:  # what is read twice in it would be said twice, and so on
                self.lines.append(f"t{len(self.lines)} = {text}")
                text = f"t{len(self.lines) - 1}"
            self.names[node] = text
            return text
        wanted = node.name if node.op == "argument" else ""
        if not wanted or re.fullmatch(r"in(put)?\d+", wanted):
            wanted = _NAMES[len(self.tensors) % len(_NAMES)]
        while wanted in self.names.values() or keyword.iskeyword(wanted):
            wanted += "_"
        self.names[node] = wanted
        self.tensors.append(node)
        return wanted

    def _source(self) -> str:
        *before, last = self.lines
        lines = [*before, "return " + last.partition(" = ")[2]]
        init = [
            f"        self.{name} = {name}"
            for name in self.numbers
            if re.search(rf"self\.{name}\b", "\n".join(lines))
        ]
        layers = [f"        {line}" for line in self.layers]
        body = ["        super().__init__()", *layers, *init]
        head = [f"    def __init__({', '.join(['self', *self.numbers])}):", *body, ""]
        given = ", ".join(["self", *(self.names[n] for n in self.tensors)])
        return "\n".join([
            "import torch", "import torch.nn as nn", "import torch.nn.functional as F", "", "",
            "class Model(nn.Module):", *(head if self.layers or self.numbers else []),
            f"    def forward({given}):", *(f"        {line}" for line in lines), "",
        ])  # fmt: skip

    def _task(self) -> Task:
        task = self.whole.task
        cases = tuple(self._case(at, case) for at, case in enumerate(self.whole.cases))
        small = len(task.cases)
        names = tuple(called(node) for node in self.group)
        return Task(
            name=f"{task.name}_part_{self.number + 1}",
            tier=task.tier,
            family=PART,
            ops=names,
            description=", ".join(names),
            reference=self._source(),
            init_args=cases[small].init_args if len(cases) > small else cases[0].init_args,
            cases=cases[:small],
            gpu_cases=cases[small:],
            split=Split.OUTSIDE,
            source=task.source,
            licence=task.licence,
        )

    def _case(self, at: int, case: TestCase) -> TestCase:
        return TestCase(
            name=case.name,
            inputs=tuple(self._spec(node, at, case) for node in self.tensors),
            init_args=tuple(worth(n, self.whole.sizes[at]) for n in self.numbers.values()),
            reduction_length=case.reduction_length,
            shown=case.shown,
        )

    def _spec(self, node: Node, at: int, case: TestCase) -> TensorSpec:
        arguments = self.whole.graph.arguments[: len(case.inputs)]
        if node in arguments:
            own = case.inputs[arguments.index(node)]
            return own.model_copy(update={"name": self.names[node]})
        low, high = _bounds(node, [seen[node] for seen in self.whole.seen], at)
        return TensorSpec.model_validate({
            "name": self.names[node], "shape": self.whole.shape(node, at),
            "dtype": node.type.dtype, "low": low, "high": high,
        })  # fmt: skip

    def _check(self, task: Task) -> None:
        """That the part makes of what the whole made before it what the whole made. Raises
        PartsError."""
        for case, seen in zip(task.cases, self.whole.seen, strict=True):
            try:
                with recorded_definitions() as definitions, torch.random.fork_rng([]):
                    model = run_reference(task.reference)["Model"](*case.init_args)
                    own = definitions.parameters(model)
                    for tensor, node in zip(own.values(), self.parameters, strict=True):
                        tensor.copy_(seen[node])
                with torch.no_grad():
                    found = model(*(seen[n].clone() for n in self.tensors))
            except Exception as e:  # whatever torch raises
                raise PartsError(f"its part {task.description} cannot be run alone: {e}") from e
            if not is_alike(found, seen[self.group[-1]]):
                raise PartsError(f"its part {task.description} gives something else alone")


def _bounds(node: Node, seen: Sequence[torch.Tensor], at: int) -> tuple[float | None, float | None]:
    """Of what no caller draws: where the module makes no negative number, none is drawn; a whole
    number of its own (an offset, an index) stays between those that it has, at a size for a GPU
    between those of the first small one."""
    finite = [t for t in seen if t.numel() and t.isfinite().all()]
    if not finite or node.type.dtype == "bool":
        return None, None
    if not is_floating(node):
        own = seen[at if at < len(seen) else 0]
        return (float(own.min()), float(own.max())) if own.numel() else (None, None)
    least, most = min(float(t.min()) for t in finite), max(float(t.max()) for t in finite)
    return (least / 2, most * 2) if 0 <= least < most else (None, None)
