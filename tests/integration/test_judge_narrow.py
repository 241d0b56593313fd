"""What passed while the judge drew too little of something does not, and its honest twin does."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.types import Status
from corpus.seen_narrow import NARROW_PAIRS, Pair
from corpus.seen_world import WORLD_PAIRS
from support.sweep import sweep

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("pair", sweep((*NARROW_PAIRS, *WORLD_PAIRS), 5, lambda pair: pair.name))
def test_an_attack_fails_and_its_honest_twin_is_correct(pair: Pair, pool: JudgePool) -> None:
    wrong = pool.judge_blocking(pair.task, pair.attack)
    assert wrong.status is not Status.CORRECT
    assert wrong.status is not Status.UNSUPPORTED, wrong.reason
    right = pool.judge_blocking(pair.task, pair.honest)
    assert right.status is Status.CORRECT, right.reason


@pytest.mark.slow
def test_a_refusal_of_sizes_beyond_the_declared_ones_is_told(pool: JudgePool) -> None:
    (pair,) = (p for p in NARROW_PAIRS if p.name == "residue_5_of_16_columns")
    verdict = pool.judge_blocking(pair.task, pair.honest)
    (told,) = (p for p in verdict.pitfalls if p.rule == "refused_size")
    assert "too wide" in told.message
