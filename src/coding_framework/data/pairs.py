"""Supervised pairs of the whole catalogue: every kernel, every improvement, several repairs a task.

`examples` gives a small model one example a task; here are all that the receipts bear out, for
larger data. Guaranteed: answers were judged correct, repaired kernels were judged not correct, and
no two pairs of a kind have the same device code. Where a receipt has no digest of the device code,
the kernel's normalised source stands for it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from coding_framework.data.audit import normalised_source
from coding_framework.data.examples import (
    KERNELBENCH_HAS,
    generating,
    kernel_ms,
    optimizing,
    repairing,
    round_robin,
)
from coding_framework.data.synthesis.catalog import (
    Function,
    build_task,
    family_of,
    split_of,
)
from coding_framework.data.synthesis.faults import BrokenKernel, break_in_many_ways
from coding_framework.data.synthesis.kernels import kernels
from coding_framework.data.synthesis.receipts import Job, KernelReceipt, Key
from coding_framework.data.synthesis.styles import COMPACT, Style, varied_style
from coding_framework.types import KernelExample, Split, Task, TrainingExample

REPAIRS = 2
"""Broken kernels of a training task: of its naive kernel and of its best one, one each in turn."""
_FASTER = 1.02
"""An optimiser's answer is at most this many times slower: the time model is not good for 2%."""


def style_of(function: Function) -> Style:
    """Every second task is written in a style of its own, so that names teach nothing."""
    digest = zlib.crc32(function.name.encode())
    return COMPACT if digest % 2 == 0 else varied_style(digest)


def kernel_jobs(functions: Iterable[Function]) -> Iterator[Job]:
    """All kernels of the functions, in the compact style."""
    for function in functions:
        task = build_task(function)
        for kernel in kernels(function):
            yield Job(task, kernel.level, kernel.code)


def pair_jobs(functions: Iterable[Function]) -> Iterator[Job]:
    """What pairs need beyond `kernel_jobs`: kernels in the tasks' own styles, and broken ones."""
    for function in functions:
        if split_of(function) is not Split.TRAIN:
            continue
        task, style = build_task(function), style_of(function)
        for kernel in kernels(function, style) if style != COMPACT else ():
            yield Job(task, kernel.level, kernel.code)
        for _, broken in _broken(function):
            yield Job(task, f"broken:{broken.fault}", broken.code)


def balanced(functions: Sequence[Function], count: int | None) -> list[Function]:
    """The first `count`, one of each family in turn; None: all."""
    families: dict[str, list[Function]] = {}
    for function in functions:
        families.setdefault(family_of(function).name, []).append(function)
    return list(islice(round_robin(families.values()), count))


def _broken(function: Function) -> list[tuple[KernelExample, BrokenKernel]]:
    """(the kernel, what became of it)."""
    made = kernels(function, style_of(function))
    seed = zlib.crc32(function.name.encode())
    return [
        (kernel, broken)
        for number, kernel in enumerate(dict.fromkeys((made[0], made[-1])))
        for broken in break_in_many_ways(kernel.code, seed + number, REPAIRS // 2)
    ]


@dataclass
class PairReport:
    """What came of a build. Maker: `sft_pairs`. Consumer: the manifest."""

    kept: Counter[str] = field(default_factory=Counter)
    """By tier and kind: "tier 0 generate"."""
    left_out: Counter[str] = field(default_factory=Counter)
    """By reason."""


def sft_pairs(
    functions: Iterable[Function],
    receipts: Mapping[Key, KernelReceipt],
    report: PairReport,
) -> Iterator[TrainingExample]:
    """All pairs of the training functions, deterministic, counted in `report` as they are made."""
    seen: set[tuple[str, ...]] = set()
    for function in functions:
        if split_of(function) is not Split.TRAIN or function.name in KERNELBENCH_HAS:
            continue
        for example, digest in _pairs(_Judged(function, receipts, report)):
            key = (example.kind, *digest)
            if key in seen:
                report.left_out["device code seen before"] += 1
                continue
            seen.add(key)
            report.kept[f"tier {example.task.tier} {example.kind}"] += 1
            yield example


class _Judged:
    """A function's task and kernels, with what the judge said of them."""

    def __init__(
        self, function: Function, receipts: Mapping[Key, KernelReceipt], report: PairReport
    ) -> None:
        self.function = function
        self.task: Task = build_task(function)
        self._receipts = receipts
        self._report = report

    def receipt(self, code: str) -> KernelReceipt | None:
        found = self._receipts.get(Job(self.task, "", code).key)
        if found is None:
            self._report.left_out["not judged"] += 1
        return found

    def correct(self, style: Style) -> list[tuple[KernelExample, KernelReceipt]]:
        """The kernels that were found correct, naive first."""
        found = [(k, self.receipt(k.code)) for k in kernels(self.function, style)]
        wrong = sum(r is not None and not r.verdict.correct for _, r in found)
        self._report.left_out["not correct"] += wrong
        return [(k, r) for k, r in found if r is not None and r.verdict.correct]


def _pairs(judged: _Judged) -> Iterator[tuple[TrainingExample, tuple[str, ...]]]:
    for style in dict.fromkeys((COMPACT, style_of(judged.function))):
        correct = judged.correct(style)
        for kernel, receipt in correct:
            yield generating(judged.task, kernel, receipt), (_device_code(kernel.code, receipt),)
        yield from _improvements(judged.task, correct)
    yield from _repairs(judged)


def _improvements(
    task: Task, correct: list[tuple[KernelExample, KernelReceipt]]
) -> Iterator[tuple[TrainingExample, tuple[str, ...]]]:
    """From the naive kernel to each that is not slower."""
    if not correct or correct[0][0].level != "naive":
        return
    (naive, before), *better = correct
    for kernel, receipt in better:
        if kernel_ms(receipt) > _FASTER * kernel_ms(before):
            continue
        example = optimizing(task, naive, before, kernel, receipt)
        yield (
            example,
            (_device_code(naive.code, before), _device_code(kernel.code, receipt)),
        )


def _repairs(judged: _Judged) -> Iterator[tuple[TrainingExample, tuple[str, ...]]]:
    for kernel, broken in _broken(judged.function):
        after, before = judged.receipt(kernel.code), judged.receipt(broken.code)
        if after is None or before is None or not after.verdict.correct or before.verdict.correct:
            continue
        number = before.kernel_sha256[:8]
        example = repairing(judged.task, broken, before, kernel, after, number)
        yield example, (_device_code(broken.code, before), _device_code(kernel.code, after))


def _device_code(code: str, receipt: KernelReceipt) -> str:
    compiled = receipt.verdict.compile
    digest = compiled.ptx_sha256 if compiled is not None else ""
    return digest or normalised_source(code)
