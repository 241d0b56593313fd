"""Every attack gets its own verdict, never `correct`; honest kernels between them pass."""

from __future__ import annotations

import re

import psutil
import pytest

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from corpus.judge_attacks import ATTACKS, Attack
from support.judging import StillHonest
from support.sweep import sweep

pytestmark = pytest.mark.integration

LEAKED = re.compile(r"root:x:|/bin/bash|daemon:|CUDA_RL|PYTHONPATH")
STARTS_OR_ENDS_PROCESSES = {
    "host_computes_in_a_thread", "host_aborts", "kills_everything", "fork_bomb", "leaves_a_daemon",
    "sends_a_forged_result", "error_flood",
}  # fmt: skip


def test_there_are_enough_attacks_with_names_of_their_own() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60


@pytest.mark.parametrize("attack", sweep(ATTACKS, 2, lambda attack: attack.name))
def test_an_attack_fails_gives_nothing_away_and_honest_kernels_still_pass(
    attack: Attack, pool: JudgePool, still_honest: StillHonest
) -> None:
    hostile = pool.judge_blocking(attack.task, attack.code)
    assert hostile.status in attack.statuses, hostile.reason
    assert hostile.timing is None
    assert "\n" not in hostile.reason
    assert not LEAKED.search(hostile.model_dump_json(exclude={"safety"}))
    still_honest()


def test_nothing_is_left_behind(request: pytest.FixtureRequest) -> None:
    before = set(psutil.Process().children(recursive=True))
    every = request.config.getoption("--every-attack")
    with JudgePool(JudgeConfig(seed=11, host_cpu_s=2), workers=1) as own:
        for attack in ATTACKS:
            if every or attack.name in STARTS_OR_ENDS_PROCESSES:
                own.judge_blocking(attack.task, attack.code)
    left = set(psutil.Process().children(recursive=True)) - before
    assert [process.cmdline() for process in left] == []
