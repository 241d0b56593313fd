"""A sample of the corpus that `benchmarks/judge_rates.py` judges whole: one of each kind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.types import Status
from corpus.collection import Case, attacks, honest_kernels
from corpus.records import AFFINE, AFFINE_SOURCE
from support.judging import StillHonest

pytestmark = pytest.mark.integration

_SLOW = {Status.TIMEOUT, Status.COMPILE_TIMEOUT, Status.MEMORY_LIMIT}


def _spread(cases: Sequence[Case], count: int) -> list[Case]:
    """`count` cases, evenly over the list, which goes from kind to kind."""
    return [cases[i * len(cases) // count] for i in range(count)]


QUICK = [case for case in attacks() if not case.statuses & _SLOW and case.origin == "unseen"]
NEW = [case for case in attacks() if case.origin == "seen" and not case.name.startswith("seen/")]
HOSTILE = [*_spread(QUICK, 10), *_spread(NEW, 4)]
HONEST = _spread([case for case in honest_kernels(0) if case.origin == "unseen"], 12)


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_an_attack_of_the_corpus_fails_and_honest_kernels_still_pass(
    case: Case, pool: JudgePool, still_honest: StillHonest
) -> None:
    hostile = pool.judge_blocking(case.task, case.code)
    assert hostile.status in case.statuses, hostile.reason
    still_honest(AFFINE, AFFINE_SOURCE)


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_kernel_of_the_corpus_is_correct(case: Case, pool: JudgePool) -> None:
    verdict = pool.judge_blocking(case.task, case.code)
    assert verdict.correct, verdict.reason
