"""A synthesised task at shapes that no training task has.

Every extent of training is moved by one rule, equal ones alike, so that inputs still fit together:
small extents double, others shrink by a quarter to an even number that is no multiple of 4.
"""

from __future__ import annotations

from coding_framework.data.synthesis.catalog import parse_function
from coding_framework.data.synthesis.workloads.base import Size, Workload
from coding_framework.errors import UsageError
from coding_framework.types import Split, Task, TestCase

SUFFIX = "@shapes"
"""Of such a task's name."""
_SMALL = 20


def with_held_out_shapes(task: Task) -> Task:
    """The same function at other shapes, for evaluation only. Raises UsageError for a task that is
    not synthesised."""
    function = parse_function(task.name)
    if function is None:
        raise UsageError(f"{task.name} is no synthesised task: its shapes are its own")
    if isinstance(function, Workload):
        sizes = function.op.sizes
        cases = _workload_cases(task.cases, function, sizes.emulator)
        gpu_cases = _workload_cases(task.gpu_cases, function, sizes.gpu)
    else:
        cases, gpu_cases = (
            tuple(_resized(case) for case in given) for given in (task.cases, task.gpu_cases)
        )
    return task.model_copy(
        update={
            "name": task.name + SUFFIX,
            "cases": cases,
            "gpu_cases": gpu_cases,
            "split": Split.HELD_OUT,
        }
    )


def move_extent(extent: int) -> int:
    """The extent that the rule gives. An extent of 1 stays, because it means broadcasting."""
    if extent <= 1:
        return extent
    return 2 * extent if extent < _SMALL else extent * 3 // 4 // 4 * 4 + 2


def _resized(case: TestCase) -> TestCase:
    """A program's case: extents are rows and columns, and a reduction is along one or over both."""
    rows, columns = case.inputs[0].shape
    terms = case.reduction_length
    both = terms == rows * columns and terms > 1
    return case.model_copy(
        update={
            "inputs": tuple(
                spec.with_shape([move_extent(e) for e in spec.shape]) for spec in case.inputs
            ),
            "reduction_length": move_extent(rows) * move_extent(columns)
            if both
            else move_extent(terms),
        }
    )


def _workload_cases(
    cases: tuple[TestCase, ...], workload: Workload, sizes: tuple[Size, ...]
) -> tuple[TestCase, ...]:
    axes, moved = workload.op.sizes, []
    for case, size in zip(cases, sizes, strict=True):
        other = tuple(
            extent if axis in axes.fixed else move_extent(extent)
            for axis, extent in zip(axes.axes, size, strict=True)
        )
        update = {"inputs": workload.specs(other), "reduction_length": workload.terms(other)}
        moved.append(case.model_copy(update=update))
    return tuple(moved)
