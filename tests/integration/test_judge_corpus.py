"""A sample of the corpus that `benchmarks/judge_rates.py` judges whole: one of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.types import Status, Verdict
from corpus.collection import Case, attacks, honest_kernels
from corpus.records import AFFINE, AFFINE_SOURCE

pytestmark = pytest.mark.integration

_SLOW = {Status.TIMEOUT, Status.COMPILE_TIMEOUT, Status.MEMORY_LIMIT}


def _spread(cases: Sequence[Case], count: int) -> list[Case]:
    """`count` cases, evenly over the list, which goes from kind to kind."""
    return [cases[i * len(cases) // count] for i in range(count)]


QUICK = [case for case in attacks() if not case.statuses & _SLOW and case.origin == "unseen"]
NEW = [case for case in attacks() if case.origin == "seen" and not case.name.startswith("seen/")]
HOSTILE = [*_spread(QUICK, 10), *_spread(NEW, 4)]
HONEST = _spread([case for case in honest_kernels(0) if case.origin == "unseen"], 12)


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, Future[tuple[Verdict, Verdict | None]]]]:
    with (
        JudgePool(JudgeConfig(seed=23, host_cpu_s=2)) as pool,
        ThreadPoolExecutor(pool.capacity) as threads,
    ):

        def judge(case: Case) -> tuple[Verdict, Verdict | None]:
            verdict = pool.judge_blocking(case.task, case.code)
            return verdict, None if case.honest else pool.judge_blocking(AFFINE, AFFINE_SOURCE)

        yield {case.name: threads.submit(judge, case) for case in (*HOSTILE, *HONEST)}


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_an_attack_of_the_corpus_fails_and_the_next_honest_kernel_passes(
    case: Case, verdicts: dict[str, Future[tuple[Verdict, Verdict | None]]]
) -> None:
    hostile, honest = verdicts[case.name].result()
    assert hostile.status in case.statuses, hostile.reason
    assert honest is not None
    assert honest.correct, honest.reason


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_kernel_of_the_corpus_is_correct(
    case: Case, verdicts: dict[str, Future[tuple[Verdict, Verdict | None]]]
) -> None:
    verdict, _ = verdicts[case.name].result()
    assert verdict.correct, verdict.reason
