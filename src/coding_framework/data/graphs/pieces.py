"""Tasks and kernels of parts of graphs, as modules are taken apart (`data/parts`), for SFT alone.

a graph -> one of its tensors, and a few operations before it -> a graph of its own, whose
module is taken apart: where that is one part, its reference is the task's and the kernel is
written for its arguments
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from coding_framework.data.graphs.cuda import Cuda
from coding_framework.data.graphs.examples import MOST_GRAPHS, excluded, task_of
from coding_framework.data.graphs.grammar import draw_graph, may_be_trained
from coding_framework.data.graphs.nodes import (
    PASSED,
    PASSED_BOTH,
    Each,
    Given,
    Graph,
    Head,
    Node,
    View,
)
from coding_framework.data.graphs.renamed import renamed, renamed_text
from coding_framework.data.graphs.singles.drawn import draw_single, draw_typed
from coding_framework.data.graphs.source import Source
from coding_framework.data.parts.calls import PartsError, traced
from coding_framework.data.parts.pieces import MOST_OPERATIONS, Part, parted
from coding_framework.errors import UsageError
from coding_framework.types import KernelExample, Split, Task

_PLAN = re.compile(r"^// t\d+ \(.*\) = .*$", re.MULTILINE)
_SHOWN = {
    "n": (2, 4, 8, 16, 32, 64, 128),
    "t": (60, 96, 100, 128, 200, 256, 336, 512),
    "d": (72, 96, 120, 192, 264, 384, 768),
    "c": (24, 48, 60, 72, 96, 192),
    "h": (12, 16, 20, 28, 32, 56),
    "w": (12, 20, 24, 28, 36, 56),
}
"""Lengths that are shown, by the size's name: a graph has ever the same."""
OF_A_GRAPH = 3
"""Pieces of a graph, at most."""
SINGLES = 2
"""Beside them, at each number."""
_TYPED_EACH = 3
"""At every third number one more, which gives booleans or whole numbers."""


def piece_tasks(count: int) -> Iterator[tuple[Task, KernelExample]]:
    """The first `count`, no two alike in reference and kernel. Raises UsageError where there are
    fewer."""
    seen: set[tuple[str, str]] = set()
    if not count:
        return
    for number in range(MOST_GRAPHS):
        for task, kernel in pieces_of(number):
            if (alike := (task.reference, kernel.code)) not in seen:
                seen.add(alike)
                yield task, kernel
                if len(seen) == count:
                    return
    raise UsageError(f"there are {len(seen)} pieces of graphs: ask for no more")


def pieces_of(number: int) -> list[tuple[Task, KernelExample]]:
    """Those of the graph of that number."""
    found: list[tuple[Task, KernelExample]] = []
    graph = None if number in excluded() else draw_graph(number)
    rng = random.Random(f"pieces {number}")
    nodes = [] if graph is None else [*graph.output.walk()]
    whole = _saying_more(nodes)
    tensors = [
        n for n in nodes
        if isinstance(n, (Each, Head)) and not _is_inner(n) and id(n) not in whole
    ]  # fmt: skip
    for node in rng.sample(tensors, min(len(tensors), 2 * OF_A_GRAPH)):
        assert graph is not None
        made = _piece(_Cutting(graph, whole, rng), node, f"{number}_{len(found)}")
        if made is not None:
            found.append(made)
        if len(found) == OF_A_GRAPH:
            break
    for one in range(SINGLES * number, SINGLES * (number + 1)):
        if (single := draw_single(one)) and (made := _as_part(single)):
            found.append(made)
    if number % _TYPED_EACH == 0 and (typed := draw_typed(number)) and (made := _as_part(typed)):
        found.append(made)
    return found


def _is_inner(node: Node) -> bool:
    """Whether another node's text says it."""
    return node.python in (PASSED, PASSED_BOTH)


def _saying_more(nodes: Sequence[Node]) -> set[int]:
    """Nodes whose text says what is done with them too: a product and the root that it is divided
    by. Neither is there without the other."""
    return {
        id(a)
        for n in nodes if _is_inner(n)
        for a in n.args if isinstance(a, Head) and not _is_inner(a) and a.plan not in ("", a.python)
    }  # fmt: skip


def _piece(cutting: _Cutting, node: Node, name: str) -> tuple[Task, KernelExample] | None:
    """None where it is not one part, or has no kernel here."""
    output = cutting.kept(node)
    own = _graph_of(cutting.graph, output, cutting.inputs, f"piece_{name}")
    return None if own is None else _as_part(own)


def _as_part(own: Graph) -> tuple[Task, KernelExample] | None:
    """The same of a graph that is to be one part."""
    try:
        source = Source(own, random.Random(f"piece source {own.name}"))
        task = task_of(own, source.text(), source)
        parts = parted(trace := traced(task, to_join=False))
    except (PartsError, ValueError, AssertionError):
        return None
    if len(parts) != 1 or not may_be_trained([*parts[0].task.ops]):
        return None
    part = parts[0]
    given = [*own.inputs, *own.parameters]
    if any(n >= len(given) for n in part.tensors) or part.output != trace.outputs[0]:
        return None  # a view stands before it or behind it
    for number, called in zip(part.tensors, part.names, strict=True):
        given[number].c_name = called
    ordered = tuple(given[number] for number in part.tensors)
    try:
        code, terms = _code(replace(own, inputs=ordered, layers=()), part)
    except ValueError:
        return None
    code = _as_said(code, part)
    sets = (part.task.cases, part.task.gpu_cases)
    longest = iter(terms)
    cases, gpu_cases = (
        tuple(c.model_copy(update={"reduction_length": next(longest)}) for c in some)
        for some in sets
    )
    task = part.task.model_copy(update={
        "name": own.name, "split": Split.TRAIN, "source": "graphs", "naive_kernel": code,
        "cases": cases, "gpu_cases": gpu_cases,
    })  # fmt: skip
    return task, KernelExample(task=task.name, level="naive", code=code, why_faster="")


def _code(graph: Graph, part: Part) -> tuple[str, list[int]]:
    """(its kernel, with names of extents that tell nothing, and the terms of its longest loop in
    each case). Raises ValueError where it has none."""
    try:
        cuda = Cuda(_with_numbers(renamed(graph), part))
        return cuda.source(), _longest(cuda)
    except ValueError:
        if any(isinstance(one, tuple) for one in graph.constants.values()):
            raise  # its name may be a size's
        cuda = Cuda(graph)
        return renamed_text(cuda.source(), graph), _longest(cuda)


def _longest(cuda: Cuda) -> list[int]:
    sets = map(cuda.graph.at, range(6))
    return [max([1, *(one.value(sizes) for one in cuda.terms)]) for sizes in sets]


def _with_numbers(graph: Graph, part: Part) -> Graph:
    """With the sizes that no tensor has, where they are numbers that the part's kernel is given."""
    cases = (*part.task.cases, *part.task.gpu_cases)
    values = zip(*(case.init_args for case in cases), strict=True)
    given = dict(zip(values, part.arguments, strict=True))
    kinds = {name: "int64_t" if type(told[0]) is int else "double" for told, name in given.items()}
    of_tensors = {dim.text for one in graph.inputs for dim in one.dims}
    told = {
        size: given[one.values]
        for size, one in graph.sizes.items()
        if size not in of_tensors and one.values in given
    }
    for constant, value in graph.constants.items():
        if isinstance(value, tuple):
            _say(graph, f"<{constant}>", given[value])
    return replace(graph, told=told, numbers=tuple((kinds[n], n) for n in kinds))


def _say(graph: Graph, constant: str, name: str) -> None:
    """The number that varies by the name that the kernel has for it."""
    for node in graph.output.walk():
        node.python = node.python.replace(constant, f"self.{name}")
        if isinstance(node, Each):
            node.c = node.c.replace(constant, name)


def _as_said(code: str, part: Part) -> str:
    """The kernel with the words of the part's reference in its plan, where that is one line."""
    plan = _PLAN.findall(code)
    if len(plan) != 1:
        return code
    *before, last = part.statements
    texts = dict(before)
    said = last[1]
    for name in reversed(texts):
        said = re.sub(rf"\b{name}\b", lambda found: texts[found[0]], said)
    return code.replace(plan[0], plan[0].partition(" = ")[0] + f" = {said}")


class _Cutting:
    """Copies of a node and of some before it; what is before those is given."""

    def __init__(self, graph: Graph, saying_more: set[int], rng: random.Random) -> None:
        self.graph = graph
        self.saying_more = saying_more
        self.rng = rng
        self.parameters = {id(p) for p in graph.parameters}
        self.inputs: list[Given] = []
        self.copies: dict[int, Node] = {}
        self.count = 0
        self.heads = 0

    def kept(self, node: Node) -> Node:
        """Its copy."""
        if id(node) not in self.copies:
            self.count += not _is_inner(node)
            self.heads += isinstance(node, Head)
            args = tuple(
                self._argument(a, said=f"{{{n}}}" in node.python) for n, a in enumerate(node.args)
            )
            self.copies[id(node)] = replace(node, args=args, part=None)
        return self.copies[id(node)]

    def _argument(self, arg: Node, *, said: bool) -> Node:
        """said: whether the Python of what reads it names it; else that is of both."""
        if id(arg) in self.copies:
            return self.copies[id(arg)]
        if id(arg) in self.parameters:
            return arg
        together = _is_inner(arg) or id(arg) in self.saying_more
        if together or not said or _is_of_integers(arg):
            return self.kept(arg)
        fits = (
            isinstance(arg, (Each, Head))
            and self.count < MOST_OPERATIONS
            and (not isinstance(arg, Head) or self.heads == 0)
        )
        if fits and self.rng.random() < 0.55:
            return self.kept(arg)
        if isinstance(arg, Given):
            made = replace(arg)
        else:
            made = Given(dims=arg.dims, c_name=f"in{len(self.inputs)}")
            made.python = f"in{len(self.inputs)}"
        self.copies[id(arg)] = made
        self.inputs.append(made)
        return made


def _is_of_integers(node: Node) -> bool:
    """Whether it shows whole numbers that are given."""
    while isinstance(node, View):
        node = node.args[0]
        if isinstance(node, Given) and node.dtype == "int64":
            return True
    return False


def _graph_of(graph: Graph, output: Node, inputs: list[Given], name: str) -> Graph | None:
    """None where a size is part of another: its text would be of what is not there."""
    nodes = [*output.walk()]
    layers = tuple(one for one in graph.layers if any(g in nodes for g in one.given))
    used = {s for n in nodes for d in n.dims for names, _ in d.terms for s in names}
    used |= {s for one in layers for g in one.given for d in g.dims for t, _ in d.terms for s in t}
    used |= {s for one in inputs if one.high for t, _ in one.high.terms for s in t}
    sizes = {s: graph.sizes[s] for s in graph.sizes if s in used}
    if any(size.c for size in sizes.values()) or not inputs:
        return None
    real = random.Random(f"sizes {name}")
    for size, one in sizes.items():
        first = real.choice(_SHOWN[size]) if size in _SHOWN else one.values[3]
        sizes[size] = replace(one, values=(*one.values[:3], first, *one.values[4:]))
    constants = {
        c: v for c, v in graph.constants.items() if any(f"<{c}>" in n.python for n in nodes)
    }
    return Graph(name, output, tuple(inputs), layers, sizes, constants, graph.ops)
