"""A shape set that nobody knows before: its sizes are drawn from the run's secret.

A task's own shape sets are known to whoever knows the task, and leave room: a kernel may be right
for them alone, or up to as many columns as they have. The drawn one has an odd number of rows. Its
matrices have 258 to 510 columns, 2 more than a multiple of 4, as the length of its vectors is.
Every other size lies between those of the task's shape sets. A size that the task does not vary
stays.

Beside it there are small ones (`swept_cases`), each of which is called once: sizes of every residue
of 16 within the declared range, and some beyond it: rows and columns of one element, rows of more
than a thousand columns, and more than twice as many rows as a shape set has.
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
RESIDUES = 16
"""Of each size, in the small shape sets: vectors, warps and tiles are as long, or twice."""
BEYOND = "beyond "
"""Begins the names of shape sets outside the declared range."""
_LONG_ROW = (1026, 2050)
_LARGER_BEYOND = 3
"""As `_LARGER`, of the shape sets beyond the range."""
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


def swept_cases(
    task: Task, secret: bytes, digest: str, accepts: Callable[[TestCase], bool]
) -> tuple[TestCase, ...]:
    """Those of the small shape sets that the task's function takes."""
    sizes = free_sizes(task)
    if not sizes or _has_indices(task):
        return ()
    g = np.random.Generator(np.random.Philox(key=derive_seed(secret, "residues", digest)))
    orders = [g.permutation(RESIDUES) for _ in sizes]
    wanted = []
    for i in range(RESIDUES):
        pairs = zip(sizes, orders, strict=True)
        wanted.append(("", {size.name: _of_residue(size, int(o[i])) for size, o in pairs}))
    wanted += [(BEYOND, values) for values in _beyond(task, sizes, g)]
    cases = {}
    for where, values in wanted:
        case = _with(task, sizes, values)
        shapes = " ".join("x".join(map(str, spec.shape)) for spec in case.inputs)
        cases[shapes] = case.model_copy(update={"name": f"{where}{shapes}"})
    return tuple(case for case in cases.values() if accepts(case))


def _of_residue(size: Size, residue: int) -> int:
    value = size.low + (residue - size.low) % RESIDUES
    return value if value <= size.high else size.low + residue % (size.high - size.low + 1)


def _beyond(task: Task, sizes: tuple[Size, ...], g: np.random.Generator) -> list[dict[str, int]]:
    inputs = task.cases[0].inputs
    rows = next((s for s in sizes if _is_rows(s, inputs)), None)
    columns = next((s for s in sizes if _is_columns(s, inputs)), None)
    small = {size.name: min(size.high, size.low + int(g.integers(8))) for size in sizes}
    usual = {size.name: size.shown for size in sizes}
    found = []
    if columns is not None:
        long = int(g.integers(*_LONG_ROW))
        few = {} if rows is None else {rows.name: int(g.integers(2, 5))}
        found.append({**small, columns.name: long, **few})
    if rows is not None:
        tall = 2 * rows.high + 1 + int(g.integers(rows.high + 1))
        elementwise = all(case.reduction_length == 1 for case in task.cases)
        found.append({**(usual if elementwise else small), rows.name: tall})
    beyond = [_fitting(task, sizes, values) for values in found]
    ones = [{**small, size.name: 1} for size in (rows, columns) if size is not None]
    return [values for values in beyond if values is not None] + ones


def _fitting(task: Task, sizes: tuple[Size, ...], values: dict[str, int]) -> dict[str, int] | None:
    """With its largest size less large, where the inputs would be much larger than usual; None
    where nothing beyond the declared range is left."""
    most = _LARGER_BEYOND * sum(math.prod(spec.shape) for spec in task.cases[0].inputs)
    largest = max(sizes, key=lambda size: values[size.name])
    while sum(math.prod(s.shape) for s in _with(task, sizes, values).inputs) > most:
        values = {**values, largest.name: values[largest.name] * 7 // 8}
    return values if values[largest.name] > largest.high else None


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
    inputs = tuple(spec.with_shape(shape) for spec, shape in zip(first.inputs, shapes, strict=True))
    # the longest reduction of all, and as much longer as a size may be
    longest = math.ceil(growth * max(case.reduction_length for case in task.cases))
    elementwise = all(case.reduction_length == 1 for case in task.cases)
    return TestCase(
        name=_NAME,
        inputs=inputs,
        init_args=tuple(arguments),
        reduction_length=1 if elementwise else longest,
    )
