"""Supervised examples of module tasks: task -> kernel of each level, and for each kernel that beats
lower levels, the fastest of these -> it.

Guaranteed: of training tasks alone; every answer has a `correct` receipt of the judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coding_framework.data.examples import Receipts, generating, kernel_ms, optimizing
from coding_framework.data.modules.attributes import with_other_attributes
from coding_framework.data.modules.kernels import kernels_of
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.modules.writing import write_module
from coding_framework.data.pairs import PairReport
from coding_framework.data.synthesis.receipts import Job
from coding_framework.types import KernelExample, Task, TrainingExample


def module_jobs(drafts: Iterable[ModuleDraft]) -> Iterator[Job]:
    """All kernels of the drafts."""
    for draft in drafts:
        task, kernels = module_kernels(draft)
        for kernel in kernels:
            yield Job(task, kernel.level, kernel.code)


def module_pairs(
    drafts: Iterable[ModuleDraft], receipts: Receipts, report: PairReport
) -> Iterator[TrainingExample]:
    """The examples of the training tasks among the drafts, counted in `report`."""
    for draft in drafts:
        if draft.part != "train":
            continue
        for example in _examples(draft, receipts, report):
            report.kept[f"tier {example.task.tier} {example.kind}"] += 1
            yield example


def _examples(
    draft: ModuleDraft, receipts: Receipts, report: PairReport
) -> Iterator[TrainingExample]:
    task, kernels = module_kernels(draft)
    found = [(kernel, receipts.get(Job(task, kernel.level, kernel.code).key)) for kernel in kernels]
    report.left_out["not judged"] += sum(receipt is None for _, receipt in found)
    judged = [(kernel, receipt) for kernel, receipt in found if receipt is not None]
    report.left_out["not correct"] += sum(not receipt.verdict.correct for _, receipt in judged)
    correct = [(kernel, receipt) for kernel, receipt in judged if receipt.verdict.correct]
    for kernel, receipt in correct:
        yield generating(task, kernel.model_copy(update={"why_faster": ""}), receipt)
    for number, (better, after) in enumerate(correct):
        slower = [one for one in correct[:number] if kernel_ms(one[1]) > kernel_ms(after)]
        if slower:
            kernel, before = min(slower, key=lambda one: kernel_ms(one[1]))
            yield optimizing(task, kernel, before, better, after)


def module_kernels(
    draft: ModuleDraft, spelling: int = 0, *, renamed: bool = False
) -> tuple[Task, list[KernelExample]]:
    """The task of a draft and its kernels, the naive one first. spelling, renamed: as of
    `write_module`; attributes that hold parameters have other names then as well."""
    module = write_module(draft, spelling, renamed=renamed)
    task = module_task(module)
    variants = kernels_of(module)
    codes = [variant.source for variant in variants]
    if renamed:
        every = [task.naive_kernel or "", *codes]
        source, (naive, *codes) = with_other_attributes(module, spelling, every)
        task = task.model_copy(update={"reference": source, "naive_kernel": naive})
    return task, [
        KernelExample(
            task=task.name,
            level="naive" if variant.level == 0 else f"level {variant.level}",
            code=code,
            why_faster=variant.reason,
        )
        for variant, code in zip(variants, codes, strict=True)
    ]
