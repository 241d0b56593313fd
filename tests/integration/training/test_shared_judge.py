"""The judge that a machine's rollout workers share, and what happens when it is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from judge_tasks import DOUBLE_TASK
from test_ray_judge import SLOW, began, joined, start_cluster, told

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.training.verl.shared_judge import SharedJudge

pytestmark = pytest.mark.integration


async def test_the_workers_of_a_machine_share_one_judge(tmp_path: Path) -> None:
    with joined(start_cluster()):
        await _share(tmp_path)


async def _share(tmp_path: Path) -> None:
    arguments = {"folder": str(tmp_path)}
    first, second = SharedJudge(SLOW, arguments), SharedJudge(SLOW, arguments)
    jobs = [asyncio.create_task(one(DOUBLE_TASK, "both 2")) for one in (first, second) * 20]
    process = await began(tmp_path, "both", len(jobs))
    assert told(tmp_path, "both")[-1] == [process, len(jobs)]
    os.kill(process, signal.SIGKILL)
    assert {v.task for v in await asyncio.gather(*jobs)} == {DOUBLE_TASK.name}
    assert len({process for process, _ in told(tmp_path, "both")}) == 2

    job = asyncio.create_task(first(DOUBLE_TASK, "again 600"))
    for times in (1, 2):
        os.kill(await began(tmp_path, "again", times), signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="lost twice"):
        await job
    with pytest.raises(UsageError, match="the task is wrong"):
        await second(DOUBLE_TASK, "wrong use")
    broken = SharedJudge("ray_judges:nothing", {})
    assert (await broken(DOUBLE_TASK, "here 0")).task == DOUBLE_TASK.name, "the first one's"


async def test_a_judge_that_cannot_start_says_why() -> None:
    with joined(start_cluster()):
        broken = SharedJudge("ray_judges:nothing", {})
        with pytest.raises(InfrastructureError, match="names nothing that can be used"):
            await broken(DOUBLE_TASK, "none 0")
