"""What is right on ordinary values alone is wrong, and the verdict names the input."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.types import Status
from corpus.records import Attack
from corpus.seen_edges import EDGE_ATTACKS

pytestmark = pytest.mark.integration

QUICK = "edges/softmax_and_its_maximum"


@pytest.mark.parametrize(
    "attack",
    [a if a.name == QUICK else pytest.param(a, marks=pytest.mark.slow) for a in EDGE_ATTACKS],
    ids=lambda attack: attack.name,
)
def test_a_kernel_that_is_right_on_ordinary_values_alone_is_wrong(
    attack: Attack, pool: JudgePool
) -> None:
    verdict = pool.judge_blocking(attack.task, attack.code)
    assert verdict.status is Status.WRONG_OUTPUT, verdict.reason
    assert verdict.cheats == ()
