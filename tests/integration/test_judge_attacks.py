"""Every attack gets its own verdict, never `correct`, and the next honest kernel passes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psutil
import pytest

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.types import Status, Verdict
from corpus.judge_attacks import ATTACKS, Attack
from support.judge_tasks import DOUBLE, DOUBLE_TASK

pytestmark = pytest.mark.integration

Verdicts = dict[str, "Future[tuple[Verdict, Verdict]]"]


@pytest.fixture(scope="module")
def before() -> set[psutil.Process]:
    """Children of this process that other tests left running, before the pool is there."""
    return set(psutil.Process(os.getpid()).children(recursive=True))


@pytest.fixture(scope="module")
def pool(before: set[psutil.Process]) -> Iterator[JudgePool]:
    with JudgePool(JudgeConfig(seed=11, host_cpu_s=2)) as pool:
        yield pool


@pytest.fixture(scope="module")
def verdicts(pool: JudgePool) -> Iterator[Verdicts]:
    """Each attack, and after it an honest kernel on the same worker."""

    def both(attack: Attack) -> tuple[Verdict, Verdict]:
        hostile = pool.judge_blocking(attack.task, attack.code)
        return hostile, pool.judge_blocking(DOUBLE_TASK, DOUBLE)

    with ThreadPoolExecutor(pool.capacity) as threads:
        yield {attack.name: threads.submit(both, attack) for attack in ATTACKS}


def test_there_are_enough_attacks_with_names_of_their_own() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_fails_and_the_next_honest_kernel_passes(
    attack: Attack, verdicts: Verdicts
) -> None:
    hostile, honest = verdicts[attack.name].result()
    assert hostile.status in attack.statuses, hostile.reason
    assert hostile.timing is None
    assert "\n" not in hostile.reason
    assert honest.status is Status.CORRECT, honest.reason
    assert honest.timing is not None


def test_no_verdict_gives_a_file_or_a_secret_away(verdicts: Verdicts) -> None:
    leaked = re.compile(r"root:x:|/bin/bash|daemon:|CUDA_RL|PYTHONPATH")
    for name, future in verdicts.items():
        hostile, _ = future.result()
        assert not leaked.search(hostile.model_dump_json(exclude={"safety"})), name


def test_honest_verdicts_do_not_depend_on_what_came_before(verdicts: Verdicts) -> None:
    honest = {_stable(future.result()[1]) for future in verdicts.values()}
    assert len(honest) == 1


def test_nothing_is_left_behind(
    verdicts: Verdicts, pool: JudgePool, before: set[psutil.Process]
) -> None:
    for future in verdicts.values():
        future.result()
    pool.close()
    left = set(psutil.Process(os.getpid()).children(recursive=True)) - before
    assert [p.cmdline() for p in left] == []


def _stable(verdict: Verdict) -> str:
    """A verdict without what varies from run to run: durations, and whether nvcc had to run."""
    receipt = verdict.receipt.model_copy(update={"duration_s": 0.0})
    assert verdict.compile is not None
    compiled = verdict.compile.model_copy(update={"latency_s": 0.0, "cache_hit": True})
    return verdict.model_copy(update={"receipt": receipt, "compile": compiled}).model_dump_json()
