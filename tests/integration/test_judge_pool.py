"""The pool: killed workers, many callers, overload, shared verdicts, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from coding_framework.cuda.judge import JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.types import Status, Verdict
from support.children import children_named
from support.judge_tasks import DOUBLE, DOUBLE_TASK, ROW_SUM, ROW_SUM_TASK, make_task
from support.judging import lasting_timing
from support.waiting import PATIENCE_S, left_of

pytestmark = pytest.mark.integration

CONFIG = JudgeConfig(seed=3)


@pytest.fixture(scope="module")
def pool() -> Iterator[JudgePool]:
    with JudgePool(CONFIG, workers=2) as pool:
        yield pool


def _workers() -> list[psutil.Process]:
    return children_named("coding_framework.cuda.many.worker")


def _findings(verdict: Verdict) -> tuple[object, ...]:
    return (
        verdict.status,
        verdict.tests,
        lasting_timing(verdict),
        verdict.counters,
        verdict.cheats,
    )


async def test_many_callers_at_once_get_the_same_verdict(pool: JudgePool) -> None:
    jobs = [(DOUBLE_TASK, DOUBLE), (ROW_SUM_TASK, ROW_SUM)] * 8
    of_others = len(_workers())
    verdicts = await asyncio.gather(*(pool.judge(task, code) for task, code in jobs))
    assert {v.status for v in verdicts} == {Status.CORRECT}
    assert len({str(_findings(v)) for v in verdicts[0::2]}) == 1
    assert len({str(_findings(v)) for v in verdicts[1::2]}) == 1
    assert len(_workers()) - of_others <= 2


async def test_the_verdict_is_the_same_on_a_loaded_machine(pool: JudgePool) -> None:
    idle = await pool.judge(ROW_SUM_TASK, ROW_SUM)
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        loaded = await pool.judge(ROW_SUM_TASK, ROW_SUM)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert _findings(loaded) == _findings(idle)


async def test_who_waits_is_compiled_while_another_is_judged(
    pool: JudgePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_backend", "cuda")  # where that is done
    codes = [DOUBLE + f"\n// candidate {i} of {time.time_ns()}" for i in range(8)]
    verdicts = await asyncio.gather(*(pool.judge(DOUBLE_TASK, code) for code in codes))
    assert {v.status for v in verdicts} == {Status.CORRECT}
    assert not any(v.compile and v.compile.cache_hit for v in verdicts[:2])
    assert any(v.compile and v.compile.cache_hit for v in verdicts[2:])


@pytest.mark.slow
async def test_workers_killed_while_they_compile_for_others_cost_nothing(
    pool: JudgePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_backend", "cuda")
    codes = [DOUBLE + f"\n// candidate {i} of {time.time_ns()}" for i in range(8)]
    jobs = [asyncio.create_task(pool.judge(DOUBLE_TASK, code)) for code in codes]
    await jobs[0]
    for worker in _workers():
        worker.kill()
    assert {v.status for v in await asyncio.gather(*jobs)} == {Status.CORRECT}


async def test_a_worker_killed_from_outside_costs_the_job_nothing(pool: JudgePool) -> None:
    await pool.judge(DOUBLE_TASK, DOUBLE)
    for worker in _workers():
        worker.kill()
    verdict = await pool.judge(DOUBLE_TASK, DOUBLE)
    assert verdict.status is Status.CORRECT


async def test_a_worker_killed_twice_in_one_job_is_our_fault_and_no_verdict(
    pool: JudgePool,
) -> None:
    job = asyncio.create_task(pool.judge(ROW_SUM_TASK, ROW_SUM + "// new\n" * 3))
    deadline = time.monotonic() + PATIENCE_S
    while not job.done() and time.monotonic() < deadline:
        for worker in _workers():
            with suppress(psutil.Error):
                worker.kill()
        await asyncio.sleep(0.01)
    with pytest.raises(InfrastructureError, match="died twice"):
        await job
    assert (await pool.judge(DOUBLE_TASK, DOUBLE)).status is Status.CORRECT


async def test_a_job_over_the_wall_backstop_is_our_fault() -> None:
    with (
        JudgePool(CONFIG, workers=1, job_wall_s=0.0) as pool,
        pytest.raises(InfrastructureError, match="no answer within"),
    ):
        await pool.judge(DOUBLE_TASK, DOUBLE)


async def test_errors_of_the_task_keep_their_class(pool: JudgePool) -> None:
    with pytest.raises(UsageError, match="reference of task"):
        await pool.judge(make_task("broken", "x @ x"), DOUBLE)
    assert (await pool.judge(DOUBLE_TASK, DOUBLE)).status is Status.CORRECT


async def test_hostile_text_reaches_the_worker_as_it_is(pool: JudgePool) -> None:
    for code in ("\0" * 10, "\udc80", "a" * 200_000, "\u202e", ""):
        verdict = await pool.judge(DOUBLE_TASK, code)
        assert verdict.status in {Status.COMPILE_ERROR, Status.REJECTED}, verdict.reason


async def test_verdicts_are_shared_on_disk_and_closing_leaves_no_process(tmp_path: Path) -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    one = JudgePool(CONFIG, workers=1, cache_folder=tmp_path)
    first = await one.judge(DOUBLE_TASK, DOUBLE)
    one.close()
    await _gone(before)
    with pytest.raises(InfrastructureError, match="closed"):
        await one.judge(DOUBLE_TASK, DOUBLE)
    with JudgePool(CONFIG, workers=1, cache_folder=tmp_path) as two:
        second = await two.judge(DOUBLE_TASK, DOUBLE)
        assert {p.pid for p in _workers()} <= before  # nothing had to be judged
    assert second == first


async def test_equal_candidates_at_the_same_time_are_judged_once(tmp_path: Path) -> None:
    codes = [DOUBLE, DOUBLE + "// another\n"] * 8
    with JudgePool(CONFIG, workers=2, cache_folder=tmp_path) as pool:
        verdicts = await asyncio.gather(*(pool.judge(DOUBLE_TASK, code) for code in codes))
    assert {v.status for v in verdicts} == {Status.CORRECT}
    # each judging has a receipt with a duration of its own
    assert len({v.model_dump_json() for v in verdicts}) == 2


async def test_a_judge_that_dies_is_its_own_callers_fault_alone(tmp_path: Path) -> None:
    code = ROW_SUM + "// once more\n"
    with JudgePool(CONFIG, workers=1, cache_folder=tmp_path) as pool:
        jobs = [asyncio.create_task(pool.judge(ROW_SUM_TASK, code)) for _ in range(3)]
        deadline = time.monotonic() + PATIENCE_S
        while not jobs[0].done() and time.monotonic() < deadline:
            for worker in _workers():
                with suppress(psutil.Error):
                    worker.kill()
            await asyncio.sleep(0.01)
        with pytest.raises(InfrastructureError, match="died twice"):
            await jobs[0]
        assert [(await job).status for job in jobs[1:]] == [Status.CORRECT] * 2


def test_a_killed_owner_leaves_no_process() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from support.judge_tasks import DOUBLE, DOUBLE_TASK\n"
        "from coding_framework.cuda.judge import JudgeConfig\n"
        "from coding_framework.cuda.many.pool import JudgePool\n"
        "pool = JudgePool(JudgeConfig(seed=3), workers=1)\n"
        "pool.judge_blocking(DOUBLE_TASK, DOUBLE)\n"
        "print('judged', flush=True)\n"
        "while True: pool.judge_blocking(DOUBLE_TASK, DOUBLE)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parents[1])], stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    with owner, owner.stdout:
        assert owner.stdout.readline() == b"judged\n"
        family = psutil.Process(owner.pid).children(recursive=True)
        assert family
        owner.send_signal(signal.SIGKILL)
    assert left_of(family) == []


async def _gone(before: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
        if not left:
            return
        await asyncio.sleep(0.05)
    raise AssertionError([p.cmdline() for p in left])
