"""Cheats and hostile kernels on a real GPU: never `correct`, and the next honest kernel is judged
within seconds, in the time that it always takes."""

from __future__ import annotations

import time

import pytest

from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.types import Candidate, Status, Verdict
from corpus.gpu_attacks import BIG_AFFINE, GPU_ATTACKS
from corpus.records import AFFINE_SOURCE, Attack

pytestmark = [pytest.mark.integration, pytest.mark.cuda]

HONEST = Candidate(code=AFFINE_SOURCE)
RECOVERY_S = 3.0
"""Most that the honest kernel's verdict takes longer after an attack than the one behind it."""
SAME_TIME = 0.05


@pytest.fixture(scope="module")
def judge() -> Judge:
    config = JudgeConfig(backend="cuda", seed=7, host_cpu_s=4, baselines="none", launch_wall_s=2.0)
    return Judge(config)


@pytest.fixture(scope="module")
def usual_ms(judge: Judge) -> float:
    """The honest kernel's time before any attack."""
    return _time(judge.judge(BIG_AFFINE, HONEST))


def _time(verdict: Verdict) -> float:
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.timing is not None
    assert not verdict.timing.modelled
    return verdict.timing.kernel_ms


@pytest.mark.parametrize("attack", GPU_ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_fails_and_the_next_kernel_is_judged_as_ever(
    attack: Attack, judge: Judge, usual_ms: float
) -> None:
    verdict = judge.judge(attack.task, Candidate(code=attack.code))
    assert verdict.status in attack.statuses, verdict.reason
    assert verdict.timing is None
    started = time.monotonic()
    honest = judge.judge(BIG_AFFINE, HONEST)
    recovered = time.monotonic()
    judge.judge(BIG_AFFINE, HONEST)  # beside the same neighbours
    assert recovered - started < time.monotonic() - recovered + RECOVERY_S
    assert _time(honest) == pytest.approx(usual_ms, rel=SAME_TIME)
