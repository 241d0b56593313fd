"""Makes a `Task` of a module task: what the judge, the prompts and the training take."""

from __future__ import annotations

from functools import lru_cache

from coding_framework.data.modules.catalog import find_module
from coding_framework.data.modules.records import (
    CASE_NAMES,
    ModuleDraft,
    ModuleInput,
    ModuleTask,
    Sizes,
    extent,
    shape_of,
)
from coding_framework.data.modules.sums import result
from coding_framework.types import Split, Task, TensorSpec, TestCase

SOURCE = "modules"


def module_task(module: ModuleTask) -> Task:
    """The task, without a kernel: receipts have it, or the compiler writes it."""
    draft = module.draft

    def case(name: str, sizes: Sizes) -> TestCase:
        return TestCase(
            name=name,
            inputs=tuple(_spec(given, sizes) for given in draft.inputs),
            init_args=module.init_args(sizes),
            reduction_length=result(draft, sizes)[1],
            shown=name == CASE_NAMES[0],
        )

    return Task(
        name=module.name,
        tier=tier_of(draft),
        family=draft.family,
        ops=tuple(operation.name for operation in draft.operations),
        description=module.description,
        reference=module.source,
        init_args=module.init_args(draft.gpu_sizes[0]),
        cases=tuple(case(n, s) for n, s in zip(CASE_NAMES, draft.sizes, strict=True)),
        gpu_cases=tuple(case(n, s) for n, s in zip(CASE_NAMES, draft.gpu_sizes, strict=True)),
        split=split_of(draft),
        source=SOURCE,
    )


def tier_of(draft: ModuleDraft) -> int:
    """How hard: 2 for a layer or a function, 3 for several operations after a head."""
    return 3 if draft.level == 2 else 2


def split_of(draft: ModuleDraft) -> Split:
    """Validation tasks are held out."""
    return Split.TRAIN if draft.part == "train" else Split.HELD_OUT


def _spec(given: ModuleInput, sizes: Sizes) -> TensorSpec:
    high = given.high
    if isinstance(high, str):
        high = extent(high, sizes) - 1
    return TensorSpec(
        name=given.name,
        shape=shape_of(given.dims, sizes),
        dtype=given.dtype,
        low=given.low,
        high=high,
    )


@lru_cache(maxsize=1024)
def find_module_task(name: str) -> Task | None:
    """The task of that name; None where it is no module task's."""
    module = find_module(name)
    return module_task(module) if module is not None else None
