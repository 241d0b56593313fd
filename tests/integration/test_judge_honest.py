"""Honest kernels of many styles are correct: a judge that rejects them teaches nothing."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.types import Status
from corpus.judge_honest import HONEST, Honest
from support.sweep import sweep

pytestmark = pytest.mark.integration


PAIRED = ("edges/", "narrow/")
QUICK = [kernel for kernel in HONEST if not kernel.name.startswith(PAIRED)]
TWINS = [kernel for kernel in HONEST if kernel.name.startswith(PAIRED)]


@pytest.mark.parametrize(
    "kernel",
    [
        *sweep(QUICK, 2, lambda kernel: kernel.name),
        *(pytest.param(twin, marks=pytest.mark.slow, id=twin.name) for twin in TWINS),
    ],
)
def test_an_honest_kernel_is_correct(kernel: Honest, pool: JudgePool) -> None:
    verdict = pool.judge_blocking(kernel.task, kernel.code)
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.cheats == ()
    assert "shared_memory_race" not in {p.rule for p in verdict.pitfalls}
