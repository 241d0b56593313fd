"""Supervised pairs of the catalogues: every kernel, every improvement, several repairs a task.

`examples` gives a small model one example a task; here are all that the receipts hold, for larger
data. Guaranteed: answers were judged correct, repaired kernels were judged not correct, and
no two pairs of a kind have the same device code. Where a receipt has no digest of the device code,
the kernel's normalised source stands for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from coding_framework.data.audit import normalised_source
from coding_framework.data.example_store import BuildReport
from coding_framework.data.examples import (
    KERNELBENCH_HAS,
    generating,
    kernel_ms,
    optimizing,
    repairing,
)
from coding_framework.data.faults import BrokenKernel, broken_kernels
from coding_framework.data.kernels import kernels_of, write_all
from coding_framework.data.synthesis.receipts import (
    BROKEN,
    Job,
    KernelReceipt,
    Key,
    by_task,
    task_digest,
    with_naive,
)
from coding_framework.errors import UnreadableError
from coding_framework.types import Split, Task, TrainingExample

REPAIRS = 2
"""Broken kernels of a training task: of its naive kernel and of its best one, one each in turn."""
_FASTER = 1.02
"""An optimiser's answer is at most this many times slower: the time model is not good for 2%."""


def kernel_jobs(tasks: Iterable[Task]) -> Iterator[Job]:
    """All kernels that the compiler writes for the tasks; none of a task that it cannot read."""
    chosen = list(tasks)
    write_all(chosen)
    for task in chosen:
        with suppress(UnreadableError):
            for kernel in kernels_of(task):
                yield Job(task, kernel.level, kernel.code, kernel.why_faster)


def pair_jobs(tasks: Iterable[Task]) -> Iterator[Job]:
    """What pairs need beyond `kernel_jobs`: broken kernels of training tasks."""
    for task in tasks:
        if task.split is not Split.TRAIN:
            continue
        made, seed = kernels_of(task), zlib.crc32(task.name.encode())
        for number, kernel in enumerate(dict.fromkeys((made[0], made[-1]))):
            for broken in broken_kernels(kernel.code, seed + number, REPAIRS // 2):
                yield Job(task, f"{BROKEN}{broken.fault}", broken.code, broken.why_fixed)


def sft_pairs(
    tasks: Iterable[Task],
    receipts: Mapping[Key, KernelReceipt],
    report: BuildReport,
) -> Iterator[TrainingExample]:
    """All pairs of the training tasks, deterministic, counted in `report` as they are made."""
    judged = by_task(receipts)
    seen: set[tuple[str, ...]] = set()
    for task in tasks:
        if task.split is not Split.TRAIN or task.name in KERNELBENCH_HAS:
            continue
        found = judged.get(task_digest(task), ())
        report.left_out["not judged"] += not found
        for example, digest in _pairs(task, found, report):
            key = (example.kind, *digest)
            if key in seen:
                report.left_out["device code seen before"] += 1
                continue
            seen.add(key)
            report.kept[f"tier {example.task.tier} {example.kind}"] += 1
            yield example


def _pairs(
    task: Task, receipts: Sequence[KernelReceipt], report: BuildReport
) -> Iterator[tuple[TrainingExample, tuple[str, ...]]]:
    written = [r for r in receipts if r.broken is None]
    correct = [r for r in written if r.verdict.correct]
    report.left_out["not correct"] += len(written) - len(correct)
    task = with_naive(task, correct)
    for receipt in correct:
        yield generating(task, receipt.kernel, receipt), (_device_code(receipt),)
    yield from _improvements(task, correct)
    for before in receipts if correct else ():
        if before.broken is not None and not before.verdict.correct:
            yield _repair(task, before.broken, before, correct)


def _improvements(
    task: Task, correct: Sequence[KernelReceipt]
) -> Iterator[tuple[TrainingExample, tuple[str, ...]]]:
    """From the naive kernel to each that is not slower."""
    if not correct or correct[0].level != "naive":
        return
    before, *better = correct
    for after in better:
        if kernel_ms(after) <= _FASTER * kernel_ms(before):
            example = optimizing(task, before.kernel, before, after.kernel, after)
            yield example, (_device_code(before), _device_code(after))


def _repair(
    task: Task,
    broken: BrokenKernel,
    before: KernelReceipt,
    correct: Sequence[KernelReceipt],
) -> tuple[TrainingExample, tuple[str, ...]]:
    """Of a broken kernel: the one that it was made of has the most lines that it has."""
    lines = set(before.code.splitlines())
    after = max(correct, key=lambda r: len(lines & set(r.code.splitlines())))
    example = repairing(task, broken, before, after.kernel, after)
    return example, (_device_code(before), _device_code(after))


def _device_code(receipt: KernelReceipt) -> str:
    compiled = receipt.verdict.compile
    digest = compiled.ptx_sha256 if compiled is not None else ""
    return digest or normalised_source(receipt.code)
