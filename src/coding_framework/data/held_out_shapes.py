"""A synthesised task at shapes that no training task has.

Every extent of training is moved by one rule, equal ones alike, so that inputs still fit together:
small extents double, others shrink by a quarter to an even number that is no multiple of 4.
"""

from __future__ import annotations

from coding_framework.data.synthesis.catalog import parse_function
from coding_framework.data.synthesis.function import Function
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
    cases = _moved(function, task.cases, gpu=False)
    gpu_cases = _moved(function, task.gpu_cases, gpu=True)
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


def _moved(function: Function, cases: tuple[TestCase, ...], *, gpu: bool) -> tuple[TestCase, ...]:
    axes, moved = function.core.sizes, []
    for case, size in zip(cases, function.sizes(gpu), strict=True):
        other = tuple(
            extent if axis in axes.fixed else move_extent(extent)
            for axis, extent in zip(axes.axes, size, strict=True)
        )
        update = {"inputs": function.specs(other), "reduction_length": function.terms(other)}
        moved.append(case.model_copy(update=update))
    return tuple(moved)
