"""The judge that rollout workers share, and what happens when it is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.training.verl.episode_spec import CLUSTER_JUDGE
from coding_framework.training.verl.shared_judge import SharedJudge
from support.judge_tasks import DOUBLE_TASK
from support.ray_nodes import SLOW, began, joined, judges, told

pytestmark = [pytest.mark.integration, pytest.mark.ci]


async def test_the_workers_of_a_machine_share_one_judge(
    ray_cluster: Cluster, tmp_path: Path
) -> None:
    with joined(ray_cluster):
        await _share(tmp_path)


async def _share(tmp_path: Path) -> None:
    arguments = {"folder": str(tmp_path)}
    first, second = SharedJudge(SLOW, arguments), SharedJudge(SLOW, arguments)
    jobs = [asyncio.create_task(one(DOUBLE_TASK, "both go")) for one in (first, second) * 20]
    process = await began(tmp_path, "both", len(jobs))
    assert told(tmp_path, "both")[-1] == [process, len(jobs)]
    os.kill(process, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert {v.task for v in await asyncio.gather(*jobs)} == {DOUBLE_TASK.name}
    assert len({process for process, _ in told(tmp_path, "both")}) == 2

    job = asyncio.create_task(first(DOUBLE_TASK, "again 600"))
    for times in (1, 2):
        os.kill(await began(tmp_path, "again", times), signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="lost twice"):
        await job
    with pytest.raises(UsageError, match="the task is wrong"):
        await second(DOUBLE_TASK, "wrong use")
    broken = SharedJudge("support.ray_judges:nothing", {})
    assert (await broken(DOUBLE_TASK, "here 0")).task == DOUBLE_TASK.name, "the first one's"


@pytest.mark.slow
async def test_the_workers_of_a_cluster_share_the_nodes_that_judge(
    ray_cluster: Cluster, tmp_path: Path
) -> None:
    made = {"factory": SLOW, "arguments": {"folder": str(tmp_path)}}
    nodes = {**made, "nodes": 1, "jobs_per_node": 2}
    with joined(ray_cluster):
        one, other = (SharedJudge(CLUSTER_JUDGE, nodes, "cluster") for _ in range(2))
        jobs = [asyncio.create_task(judge(DOUBLE_TASK, "job 0.1")) for judge in (one, other) * 10]
        assert {v.task for v in await asyncio.gather(*jobs)} == {DOUBLE_TASK.name}
        assert len(judges(ray_cluster)) == 2, "what they share, and the node's"
        assert {at_once for _, at_once in told(tmp_path, "job")} == {1, 2}

        job = asyncio.create_task(one(DOUBLE_TASK, "lost 3"))
        node = await began(tmp_path, "lost")
        (way,) = (process for process in judges(ray_cluster) if process.pid != node)
        way.kill()
        assert (await job).task == DOUBLE_TASK.name
        assert await began(tmp_path, "lost", 2) != node


async def test_a_judge_that_cannot_start_says_why(ray_cluster: Cluster) -> None:
    with joined(ray_cluster):
        broken = SharedJudge("support.ray_judges:nothing", {})
        with pytest.raises(InfrastructureError, match="names nothing that can be used"):
            await broken(DOUBLE_TASK, "none 0")


async def test_a_judge_sees_the_gpus_that_only_judge(ray_cluster: Cluster, tmp_path: Path) -> None:
    with joined(ray_cluster):
        judge = SharedJudge(
            "support.ray_judges:make_seeing_judge", {"folder": str(tmp_path)}, gpus="6,7"
        )
        assert (await judge(DOUBLE_TASK, "any 0")).task == DOUBLE_TASK.name
    assert (tmp_path / "sees 6,7").exists()
