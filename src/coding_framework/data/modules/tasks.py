"""Makes a `Task` of a module's draft: what the judge, the prompts and the training take."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from coding_framework.data.modules.catalog import find_draft
from coding_framework.data.modules.operations import ELEMENTWISE, ROWS
from coding_framework.data.modules.other_names import with_other_attributes
from coding_framework.data.modules.records import CASE_NAMES, ModuleDraft, ModuleInput, Sizes
from coding_framework.data.modules.spelling import Row, SizeName, Writing, draw_spelling
from coding_framework.data.modules.sums import longest_sum
from coding_framework.types import Split, Task, TensorSpec, TestCase

SOURCE = "modules"


def module_task(draft: ModuleDraft, spelling: int = 0, *, renamed: bool = False) -> Task:
    """The task, without a kernel: receipts have it, or the compiler writes it. spelling: the number
    of another way to write it. renamed: its constants and its parameters have other names."""
    w = written(draft, spelling, renamed=renamed)
    given, facts = w.given.values(), facts_of(draft)
    source = w.source(facts["description"])
    if renamed:
        source = with_other_attributes(source, f"{draft.name}/{spelling}")

    def init_args(sizes: Sizes) -> tuple[Any, ...]:
        return tuple(sizes[v] if isinstance(v, SizeName) else v for v in given)

    def case(name: str, sizes: Sizes) -> TestCase:
        return TestCase(
            name=name,
            inputs=tuple(_spec(given, sizes) for given in draft.inputs),
            init_args=init_args(sizes),
            reduction_length=longest_sum(draft, sizes),
            shown=name == CASE_NAMES[0],
        )

    return Task(
        **facts,
        reference=source,
        init_args=init_args(draft.gpu_sizes[0]),
        cases=tuple(case(n, s) for n, s in zip(CASE_NAMES, draft.sizes, strict=True)),
        gpu_cases=tuple(case(n, s) for n, s in zip(CASE_NAMES, draft.gpu_sizes, strict=True)),
    )


def facts_of(draft: ModuleDraft) -> dict[str, Any]:
    """What a list of tasks tells of it: fields of `Task`. A layer or a function is of tier 2,
    several operations after a head are of tier 3; validation tasks are held out."""
    return {
        "name": draft.name,
        "tier": 3 if draft.level == 2 else 2,
        "family": draft.family,
        "ops": tuple(operation.name for operation in draft.operations),
        "description": describe(draft),
        "split": Split.TRAIN if draft.part == "train" else Split.HELD_OUT,
        "source": SOURCE,
    }


def written(draft: ModuleDraft, spelling: int = 0, *, renamed: bool = False) -> Writing:
    """The module in the pieces of its source."""
    w = Writing(draft, replace(draw_spelling(draft.name, spelling), renamed=renamed))
    reads_head = {n for n, row in ELEMENTWISE.items() if row.reads == "head"}
    for number, o in enumerate(draft.operations):
        row = ROWS[o.name]
        w.write(row if isinstance(row, Row) else row(w, o), o)
        if number == 0 and any(o.name in reads_head for o in draft.operations):
            w.forward.append(f"residual = {w.value}")
    return w


def describe(draft: ModuleDraft) -> str:
    """One line of words: "conv2d, GELU, mean"."""
    return ", ".join(
        ELEMENTWISE[o.name].words if o.name in ELEMENTWISE else o.name.replace("_", " ")
        for o in draft.operations
    )


def _spec(given: ModuleInput, sizes: Sizes) -> TensorSpec:
    high = sizes[given.high] - 1 if isinstance(given.high, str) else given.high
    return TensorSpec(
        name=given.name, shape=given.shape(sizes), dtype=given.dtype, low=given.low, high=high
    )


@lru_cache(maxsize=1024)
def find_module_task(name: str) -> Task | None:
    """The task of that name; None where it is no module task's."""
    draft = find_draft(name)
    return module_task(draft) if draft is not None else None
