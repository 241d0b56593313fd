"""The sizes that a task declares, and the shape sets in between.

A task names a few shape sets. Extents that are equal in every one of them are one size (the columns
of a matrix and the length of its bias); one that differs between them may take any value in their
range. That is all that a task says of its domain, and no probe leaves it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from coding_framework.types import InitArg, Probe, Task, TestCase

Place = tuple[int, int]
"""(input, axis)"""


@dataclass(frozen=True, slots=True)
class Size:
    """One extent of a task that may vary, wherever it occurs."""

    name: str
    """After its first place, e.g. "x[1]"."""
    places: tuple[Place, ...]
    init_args: tuple[int, ...]
    """Positions among the arguments of `Model` that are this size."""
    low: int
    high: int
    shown: int
    """Its value in the first shape set."""


def free_sizes(task: Task) -> tuple[Size, ...]:
    """The sizes that may vary, in the order of the inputs; none where an argument of the model
    varies with the shape sets in a way that no size explains."""
    first = task.cases[0]
    ranks = {tuple(len(t.shape) for t in case.inputs) for case in task.cases}
    if len(ranks) != 1:
        return ()
    places: dict[tuple[int, ...], list[Place]] = defaultdict(list)
    for j, spec in enumerate(first.inputs):
        for axis in range(len(spec.shape)):
            places[tuple(c.inputs[j].shape[axis] for c in task.cases)].append((j, axis))
    arguments = [_arguments(task, case) for case in task.cases]
    linked: dict[tuple[int, ...], list[int]] = defaultdict(list)
    if len({len(a) for a in arguments}) != 1:
        return ()
    for k, values in enumerate(zip(*arguments, strict=True)):
        if len(set(values)) == 1:
            continue
        whole = tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))
        if whole != values or whole not in places:
            return ()
        linked[whole].append(k)
    return tuple(
        Size(
            name=f"{first.inputs[where[0][0]].name}[{where[0][1]}]",
            places=tuple(where),
            init_args=tuple(linked[values]),
            low=min(values),
            high=max(values),
            shown=values[0],
        )
        for values, where in places.items()
        if len(set(values)) > 1
    )


SHAPE_SETS, UNSEEN_SHAPE_SETS = 3, 2
"""How many different shape sets the judge's protocol wants, and how many that no agent has seen."""


def count_shape_sets(task: Task) -> tuple[int, int]:
    """How many different shape sets a task has, and how many of them no agent has seen. The first
    counts as seen where none is marked."""
    seen, sets = set(), set()
    marked = any(case.shown for case in task.cases)
    for i, case in enumerate(task.cases):
        shapes = tuple(spec.shape for spec in case.inputs), case.init_args
        sets.add(shapes)
        if case.shown or (i == 0 and not marked):
            seen.add(shapes)
    return len(sets), len(sets - seen)


def with_sizes(task: Task, values: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """The shapes of the first shape set with some sizes set, by name.

    Raises ValueError for a name that is no free size, and for a value outside its range.
    """
    shapes = [list(spec.shape) for spec in task.cases[0].inputs]
    sizes = {size.name: size for size in free_sizes(task)}
    for name, value in values.items():
        size = sizes.get(name)
        if size is None:
            raise ValueError(f"{name!r} is no size that may vary: there are {', '.join(sizes)}")
        if not size.low <= value <= size.high:
            raise ValueError(f"{name} = {value} lies outside [{size.low}, {size.high}]")
        for j, axis in size.places:
            shapes[j][axis] = value
    return tuple(tuple(shape) for shape in shapes)


def case_of_probe(task: Task, probe: Probe) -> TestCase | None:
    """The shape set that a probe asks for; None where it lies outside the task's domain."""
    first = task.cases[0]
    if len(probe.shapes) != len(first.inputs):
        return None
    values: dict[str, int] = {}
    init_args = list(_arguments(task, first))
    try:
        for size in free_sizes(task):
            j, axis = size.places[0]
            values[size.name] = probe.shapes[j][axis]
            for k in size.init_args:
                init_args[k] = values[size.name]
        if with_sizes(task, values) != probe.shapes:
            return None
    except (ValueError, IndexError):
        return None
    inputs = tuple(
        spec.with_shape(shape) for spec, shape in zip(first.inputs, probe.shapes, strict=True)
    )
    # the longest reduction of all: a tolerance that is too wide misses a fault, one that is too
    # narrow would accuse a kernel that is right
    longest = max(case.reduction_length for case in task.cases)
    return TestCase(
        name="probe", inputs=inputs, init_args=tuple(init_args), reduction_length=longest
    )


def _arguments(task: Task, case: TestCase) -> tuple[InitArg, ...]:
    return case.init_args or task.init_args
