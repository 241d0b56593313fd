"""A task's graph, its sizes at each shape set, and what its nodes hold at the small ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from coding_framework.data.graph import Graph, Node
from coding_framework.data.lower.sizes import worth
from coding_framework.data.lower.text import FLOATS
from coding_framework.data.problem_checks import drawn_input
from coding_framework.data.read import read, sizes_at
from coding_framework.data.trace import Made
from coding_framework.errors import UsageError
from coding_framework.reference_model import (
    make_model,
    recorded_definitions,
    run_reference,
    tensors_of,
)
from coding_framework.types import Task, TestCase

MOST_OPERATIONS = 1500


class PartsError(UsageError):
    """A module that cannot be parted; the sentence says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """Maker: `whole_of`. Consumers: `pieces`, `join`."""

    task: Task
    cases: tuple[TestCase, ...]
    """The small shape sets, then those of a GPU."""
    graph: Graph
    sizes: tuple[Mapping[str, float], ...]
    """What each symbol is worth, at each shape set."""
    seen: tuple[Mapping[Node, torch.Tensor], ...]
    """What each node holds, at each small shape set."""

    @property
    def parameters(self) -> frozenset[Node]:
        return frozenset(self.graph.arguments[len(self.cases[0].inputs) :])

    def shape(self, node: Node, at: int) -> tuple[int, ...]:
        """Of a node, at the shape set of that number."""
        return tuple(int(worth(extent, self.sizes[at])) for extent in node.type.shape)


def whole_of(task: Task) -> Whole:
    """Runs the task's reference, in this process. Raises UnreadableError where it has no graph, and
    PartsError where it cannot be parted."""
    if any(spec.strides for spec in task.cases[0].inputs):
        raise PartsError(f"an input of {task.name} is not contiguous: give a copy (.contiguous())")
    graph = read(task)
    if len(graph.nodes) > MOST_OPERATIONS:
        raise PartsError(
            f"{task.name} has more than {MOST_OPERATIONS} operations: solve it without parts"
        )
    cases = (*task.cases, *task.gpu_cases)
    sizes = tuple(sizes_at(graph, Made(task, case)) for case in cases)
    try:
        seen = tuple(
            _seen(task, graph, case, known) for case, known in zip(task.cases, sizes, strict=False)
        )
    except PartsError:
        raise
    except Exception as e:  # whatever a user's module raises
        raise PartsError(f"{task.name} cannot be run for its parts: {e}") from e
    return Whole(task, cases, graph, sizes, seen)


def _seen(
    task: Task, graph: Graph, case: TestCase, sizes: Mapping[str, float]
) -> dict[Node, torch.Tensor]:
    """What the nodes hold for inputs and parameters that are drawn. Raises PartsError where the
    module itself gives something else."""
    kind = run_reference(task.reference)["Model"]
    with recorded_definitions() as definitions, torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        model = make_model(kind, case.init_args or task.init_args)
        inputs = [drawn_input(spec) for spec in case.inputs]
        own = [p.detach().clone() for p in definitions.parameters(model).values()]
        held = run(graph, sizes, [*inputs, *own])
        outputs = tensors_of(model(*(one.clone() for one in inputs)))
    for node, output in zip(graph.outputs, outputs, strict=True):
        if not is_alike(held[node], output):
            raise PartsError(
                f"the steps of {task.name} differ from size to size, or draw random numbers: it "
                "has no parts"
            )
    return held


def is_alike(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """But for rounding."""
    return found.shape == wanted.shape and torch.allclose(
        found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True
    )


def run(
    graph: Graph, sizes: Mapping[str, float], arguments: Sequence[torch.Tensor]
) -> dict[Node, torch.Tensor]:
    """What each node of a graph holds for these arguments."""
    held: dict[Node, Any] = dict(zip(graph.arguments, arguments, strict=True))

    def value(one: Any, name: str = "") -> Any:
        if isinstance(one, Node):
            return held[one] if one in held else held.setdefault(one, _constant(graph, one))
        if isinstance(one, list):
            return [value(n) for n in one]
        if isinstance(one, str):
            return getattr(torch, one) if name == "dtype" else one
        return worth(one, sizes)

    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "getitem":
                of = value(node["self"])
                held[node] = of[node["number"]] if isinstance(of, (tuple, list)) else of
            else:
                operation = operation_of(node)
                held[node] = _contiguous(
                    operation(**{n: value(v, n) for n, v in node.args.items()})
                )
    return held


def _contiguous(result: Any) -> Any:
    """What an operation gives as a kernel gives it: its elements in their order."""
    if isinstance(result, torch.Tensor):
        return result.contiguous()
    return [_contiguous(one) for one in result] if isinstance(result, (tuple, list)) else result


def operation_of(node: Node) -> Any:
    """The operation of ATen that a node is."""
    base, _, overload = node.op.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload)


def _constant(graph: Graph, node: Node) -> torch.Tensor:
    values = torch.tensor(graph.constants[node.name], dtype=torch.float64)
    return values.to(getattr(torch, node.type.dtype)).view(node.type.shape)


def is_floating(node: Node) -> bool:
    return node.type.dtype in FLOATS
