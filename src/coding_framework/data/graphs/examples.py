"""Tasks and kernels of graphs, for SFT alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from coding_framework.data.graphs.cuda import Cuda
from coding_framework.data.graphs.grammar import draw_graph
from coding_framework.data.graphs.nodes import MOST_POSITIVE, Extent, Given, Graph
from coding_framework.data.graphs.source import Source
from coding_framework.data.modules.records import CASE_NAMES
from coding_framework.errors import UsageError
from coding_framework.types import KernelExample, Split, Task, TensorSpec, TestCase

FAMILY = "graph"
MOST_GRAPHS = 26000
"""Numbers that were compared with KernelBench and with the modules that people use."""
EXCLUDED_PATH = Path(__file__).with_name("excluded.txt")


@cache
def excluded() -> frozenset[int]:
    """Numbers of graphs that a problem has, or whose output hardly varies."""
    lines = EXCLUDED_PATH.read_text(encoding="utf-8").splitlines()
    return frozenset(int(line.split()[0]) for line in lines)


def graph_task(number: int) -> tuple[Task, KernelExample] | None:
    """The task of that number and its kernel; None where the number has none."""
    return None if number in excluded() else drawn_task(number)


def drawn_task(number: int) -> tuple[Task, KernelExample] | None:
    """The same of a number that may be left out."""
    graph = draw_graph(number)
    if graph is None:
        return None
    source = Source(graph, random.Random(f"graph source {number}"))
    reference = source.text()
    written = Cuda(graph)
    try:
        kernel = written.source()
    except ValueError:
        return None
    task = task_of(graph, reference, source, written.terms, kernel)
    return task, KernelExample(task=task.name, level="naive", code=kernel, why_faster="")


def task_of(
    graph: Graph,
    reference: str,
    source: Source,
    terms: Sequence[Extent] = (),
    kernel: str | None = None,
) -> Task:
    """The task of a graph whose source is written. terms: the lengths of its kernel's loops."""

    def case(at: int) -> TestCase:
        sizes = graph.at(at)
        return TestCase(
            name=CASE_NAMES[at % 3],
            inputs=tuple(_spec(g, graph, at) for g in graph.inputs),
            init_args=source.init_args(at),
            reduction_length=max([1, *(t.value(sizes) for t in terms)]),
            shown=at % 3 == 0,
        )

    return Task(
        name=graph.name,
        tier=3,
        family=FAMILY,
        ops=graph.ops,
        description=", ".join(o.replace("_", " ") for o in graph.ops),
        reference=reference,
        init_args=source.init_args(3),
        cases=tuple(map(case, range(3))),
        gpu_cases=tuple(map(case, range(3, 6))),
        naive_kernel=kernel,
        split=Split.TRAIN,
        source="graphs",
    )


def graph_tasks(count: int) -> Iterator[tuple[Task, KernelExample]]:
    """The first `count`. Raises UsageError where there are fewer."""
    number = found = 0
    while found < count:
        if number == MOST_GRAPHS:
            raise UsageError(f"there are {found} graphs: ask for no more")
        one = graph_task(number)
        number += 1
        if one is not None:
            found += 1
            yield one


def _spec(given: Given, graph: Graph, at: int) -> TensorSpec:
    sizes = graph.at(at)
    shape = tuple(d.value(sizes) for d in given.dims)
    high = given.high.value(sizes) - 1 if given.high is not None else None
    low = 0 if given.dtype == "int64" else given.low
    return TensorSpec(
        name=given.python, shape=shape, dtype=given.dtype, low=low,
        high=MOST_POSITIVE if given.low is not None else high,
    )  # fmt: skip
