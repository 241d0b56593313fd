"""Judges on a Ray cluster: the same verdicts, a bound, and what happens to jobs that are lost."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray
from judge_tasks import DOUBLE, DOUBLE_TASK, make_task

from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.errors import UsageError
from coding_framework.training.verl.ray_judge import RayJudgePool
from coding_framework.types import Candidate, Verdict

pytestmark = pytest.mark.integration

SLOW = "ray_judges:make_slow_judge"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    paths = os.pathsep.join(filter(None, sys.path))
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


def told(folder: Path, name: str) -> list[list[int]]:
    """(process, jobs at that time) for each time that the job began."""
    if not (folder / name).exists():
        return []
    return [[int(x) for x in line.split()] for line in (folder / name).read_text().splitlines()]


async def test_verdicts_are_those_of_a_judge_on_this_machine() -> None:
    arguments = {"seed": 3, "workers": 1}
    with RayJudgePool("coding_framework.wiring:make_judge", arguments, jobs_per_node=1) as pool:
        there = await pool.judge(DOUBLE_TASK, DOUBLE)
        with pytest.raises(UsageError, match="reference of task"):
            await pool.judge(make_task("broken", "x @ x"), DOUBLE)
        family = psutil.Process().children(recursive=True)  # Ray's own are among them
        family = [p for p in family if "pool_worker" in " ".join(_words(p))]
        assert family
    here = Judge(JudgeConfig(seed=3)).judge(DOUBLE_TASK, Candidate(code=DOUBLE))
    assert _findings(there) == _findings(here)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


async def test_no_more_jobs_than_slots_are_with_the_nodes(tmp_path: Path) -> None:
    with RayJudgePool(SLOW, {"folder": str(tmp_path)}, nodes=2, jobs_per_node=2) as pool:
        assert pool.capacity == 4
        await asyncio.gather(*(pool.judge(DOUBLE_TASK, "many 0.1") for _ in range(40)))
        assert len({process for process, _ in told(tmp_path, "many")}) == 2
        assert max(at_once for _, at_once in told(tmp_path, "many")) <= 2


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _findings(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.status, verdict.tests, verdict.timing, verdict.counters, verdict.cheats)
