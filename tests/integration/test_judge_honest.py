"""Honest kernels of many styles are correct: a judge that rejects them teaches nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.types import Status, Verdict
from corpus.judge_honest import HONEST, Honest

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, Future[Verdict]]]:
    with (
        JudgePool(JudgeConfig(seed=5)) as pool,
        ThreadPoolExecutor(pool.capacity) as threads,
    ):
        yield {h.name: threads.submit(pool.judge_blocking, h.task, h.code) for h in HONEST}


@pytest.mark.parametrize("kernel", HONEST, ids=lambda kernel: kernel.name)
def test_an_honest_kernel_is_correct(kernel: Honest, verdicts: dict[str, Future[Verdict]]) -> None:
    verdict = verdicts[kernel.name].result()
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.cheats == ()
    assert "shared_memory_race" not in {p.rule for p in verdict.pitfalls}
