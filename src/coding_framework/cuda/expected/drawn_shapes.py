"""A shape set that nobody knows before: its sizes are drawn from the run's secret.

A task's own shape sets are known to whoever knows the task, and leave room: a kernel may be right
for them alone, or up to as many columns as they have. The drawn one has an odd number of rows. Its
matrices have 258 to 510 columns, 2 more than a multiple of 4, as the length of its vectors is.
Every other size lies between those of the task's shape sets. A size that the task does not vary
stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from coding_framework.cuda.expected.inputs import derive_seed
from coding_framework.task_shapes import Size, free_sizes
from coding_framework.types import Task, TensorSpec, TestCase

_NAME = "drawn"
_COLUMNS = (64, 127)
"""k of 4 * k + 2."""
_TRIES = 4
_LARGER = 2
"""The drawn inputs have at most so many times the elements of the first ones."""


def drawn_case(
    task: Task, secret: bytes, digest: str, accepts: Callable[[TestCase], bool]
) -> TestCase | None:
    """None where no size varies, where the function takes no sizes but its own, or where whole
    numbers have a range: they may be indices, whose range belongs to the declared sizes. accepts:
    whether the task's function runs on a shape set."""
    sizes = free_sizes(task)
    if not sizes or any(case.name == _NAME for case in task.cases) or _has_indices(task):
        return None
    for attempt in range(_TRIES):
        generator = np.random.Generator(
            np.random.Philox(key=derive_seed(secret, "sizes", digest, attempt))
        )
        case = _case(task, sizes, generator)
        if case is not None and accepts(case):
            return case
    return None


def _has_indices(task: Task) -> bool:
    return any("int" in spec.dtype and spec.high is not None for spec in task.cases[0].inputs)


def _case(task: Task, sizes: tuple[Size, ...], g: np.random.Generator) -> TestCase | None:
    first = task.cases[0]
    most = sum(math.prod(spec.shape) for spec in first.inputs)
    values = {size.name: _value(size, first.inputs, g) for size in sizes}
    rows = next((s for s in sizes if _is_rows(s, first.inputs)), None)
    case = _with(task, sizes, values)
    if rows is not None:
        excess = sum(math.prod(spec.shape) for spec in case.inputs) / most
        fewer = max(1, min(rows.low, rows.high), int(values[rows.name] / max(1.0, excess)))
        values[rows.name] = fewer - 1 + fewer % 2 or 1
        case = _with(task, sizes, values)
    elif sum(math.prod(spec.shape) for spec in case.inputs) > _LARGER * most:  # of a square
        case = _with(task, sizes, {size.name: _between(size, g) for size in sizes})
    known = {tuple(spec.shape for spec in c.inputs) for c in task.cases}
    return None if tuple(spec.shape for spec in case.inputs) in known else case


def _is_columns(size: Size, inputs: tuple[TensorSpec, ...]) -> bool:
    """Whether it is the last axis of a matrix that comes first."""
    return len(inputs[0].shape) == 2 and (0, 1) in size.places


def _is_rows(size: Size, inputs: tuple[TensorSpec, ...]) -> bool:
    """Whether it is the first axis of several, and no other of them."""
    return len(inputs[0].shape) > 1 and (0, 0) in size.places and not _is_columns(size, inputs)


def _value(size: Size, inputs: tuple[TensorSpec, ...], g: np.random.Generator) -> int:
    if _is_columns(size, inputs):
        return 4 * int(g.integers(_COLUMNS[0], _COLUMNS[1] + 1)) + 2
    value = _between(size, g)
    return value - value % 4 + 2 if len(inputs[0].shape) == 1 and (0, 0) in size.places else value


def _between(size: Size, g: np.random.Generator) -> int:
    return int(g.integers(size.low, (size.low + 2 * size.high) // 3 + 1))


def _with(task: Task, sizes: tuple[Size, ...], values: dict[str, int]) -> TestCase:
    first = task.cases[0]
    shapes = [list(spec.shape) for spec in first.inputs]
    arguments = list(first.init_args or task.init_args)
    growth = 1.0
    for size in sizes:
        value = values[size.name]
        growth = max(growth, value / max(1, size.high))
        for j, axis in size.places:
            shapes[j][axis] = value
        for k in size.init_args:
            arguments[k] = value
    inputs = tuple(
        spec.model_copy(update={"shape": tuple(shape)})
        for spec, shape in zip(first.inputs, shapes, strict=True)
    )
    # the longest reduction of all, and as much longer as a size may be
    longest = math.ceil(growth * max(case.reduction_length for case in task.cases))
    elementwise = all(case.reduction_length == 1 for case in task.cases)
    return TestCase(
        name=_NAME,
        inputs=inputs,
        init_args=tuple(arguments),
        reduction_length=1 if elementwise else longest,
    )
