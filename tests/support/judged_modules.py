"""The kernels of module tasks that ship judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from coding_framework.data.modules.catalog import find_draft
from coding_framework.data.modules.records import ModuleDraft
from coding_framework.data.modules.tasks import module_task
from coding_framework.data.synthesis.receipts import (
    MODULES_PATH,
    Job,
    KernelReceipt,
    by_task,
    packaged_receipts,
    task_digest,
)


@cache
def _by_task() -> Mapping[str, Sequence[KernelReceipt]]:
    return by_task(packaged_receipts(MODULES_PATH))


def judged_jobs(draft: ModuleDraft) -> list[Job]:
    """The judged kernels of a draft as jobs, the naive one first; none where there are none."""
    task = module_task(draft)
    found = _by_task().get(task_digest(task), ())
    return [Job(task, r.level, r.code, r.why) for r in found]


def judged_kernels(name: str) -> dict[str, str]:
    """Level -> kernel of the module task of that name."""
    draft = find_draft(name)
    assert draft is not None
    return {job.level: job.code for job in judged_jobs(draft)}
