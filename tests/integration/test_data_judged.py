"""The real judge on synthesised kernels: their faults are found, and the receipts that ship say
what the judge says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.faults import FAULTS, broken_kernels
from coding_framework.data.kernels import kernels_of
from coding_framework.data.registry import find_task
from coding_framework.data.synthesis.receipts import (
    HARDER_PATH,
    Job,
    KernelReceipt,
    load_receipts,
    packaged_receipts,
)
from coding_framework.run.judged import judge_jobs
from coding_framework.types import Status

pytestmark = pytest.mark.integration


FOUND = {
    "missing_semicolon": Status.COMPILE_ERROR,
    "missing_bounds_check": Status.RUNTIME_ERROR,
    "off_by_one_short": Status.WRONG_OUTPUT,
}


async def test_faults_are_found(emulator_pool: JudgePool) -> None:
    naive = kernels_of(find_task("mul2_add_relu"))[0]

    async def check(fault: str, status: Status) -> None:
        [broken] = broken_kernels(naive.code, 0, among=[f for f in FAULTS if f.name == fault])
        verdict = await emulator_pool.judge(find_task("mul2_add_relu"), broken.code)
        assert verdict.status is status, verdict.reason

    await asyncio.gather(*(check(fault, status) for fault, status in FOUND.items()))


async def test_receipts_that_ship_say_what_the_judge_says(emulator_pool: JudgePool) -> None:
    receipts = [r for r in packaged_receipts().values() if not r.level.startswith("broken")]
    assert receipts, "no receipt ships: run scripts/build_receipts.py"

    async def check(receipt: KernelReceipt) -> None:
        task = find_task(receipt.task)
        assert Job(task, receipt.level, receipt.code).key == receipt.key
        verdict = await emulator_pool.judge(task, receipt.code)
        assert verdict.status is receipt.verdict.status

    harder = sorted(load_receipts(HARDER_PATH).values(), key=lambda r: r.kernel_sha256)
    sample = [*sorted(receipts, key=lambda r: r.kernel_sha256)[:4], *harder[:2]]
    await asyncio.gather(*(check(receipt) for receipt in sample))


def test_a_kernel_spelt_anew_keeps_its_verdict_without_being_judged(tmp_path: Path) -> None:
    task, path = find_task("mul2_add_relu"), tmp_path / "receipts.jsonl"
    code = next(k.code for k in kernels_of(task) if k.level == "naive")
    assert judge_jobs([Job(task, "naive", code)], path, 1, known={}) == (0, 1)
    known = load_receipts(path)
    anew = re.sub(r"\brelu_kernel\b", "add_and_clip", code)
    anew = re.sub(r"\bmul\b", "product", anew)
    assert anew != code
    assert judge_jobs([Job(task, "naive", anew)], path, 1, known=known) == (0, 0)
    (receipt,) = [r for r in load_receipts(path).values() if r.key not in known]
    assert receipt.key == Job(task, "naive", anew).key
    assert receipt.verdict.correct
