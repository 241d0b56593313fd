"""Judges on a Ray cluster: the same verdicts, a bound, and what happens to jobs that are lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ray.cluster_utils import Cluster

from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.training.verl.ray_judge import RayJudgePool
from coding_framework.types import Candidate
from support.judge_tasks import DOUBLE, DOUBLE_TASK, ROW_SUM, ROW_SUM_TASK
from support.ray_nodes import NODE, SLOW, began, gone, joined, judges, told
from support.waiting import left_of

pytestmark = [pytest.mark.integration, pytest.mark.ci]


@pytest.fixture(scope="module", autouse=True)
def cluster(ray_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster of one node with two processors, joined."""
    with joined(ray_cluster):
        yield ray_cluster


def test_the_command_gives_the_verdicts_of_this_machine_and_leaves_no_process(
    cluster: Cluster, tmp_path: Path
) -> None:
    jobs = [(DOUBLE_TASK, DOUBLE), (ROW_SUM_TASK, ROW_SUM)]
    with (tmp_path / "pairs.jsonl").open("w") as pairs:
        for task, code in jobs:
            (tmp_path / f"{task.name}.json").write_text(task.model_dump_json())
            line = {"id": task.name, "task": f"{task.name}.json", "code": code}
            pairs.write(json.dumps(line) + "\n")
    command = [sys.executable, "-m", "coding_framework.cli", "judge-many", "--seed", "3"]
    command += ["--tasks-and-kernels", pairs.name, "--ray", cluster.address, "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    there = {line["id"]: line for line in map(json.loads, done.stdout.splitlines())}
    judge = Judge(JudgeConfig(seed=3))
    for task, code in jobs:
        here = judge.judge(task, Candidate(code=code)).model_dump(mode="json")
        for said in (here, there[task.name]):
            said["timing"].pop("host_ms", None)  # a measurement of the moment
        for key in ("status", "reason", "tests", "timing", "counters", "cheats"):
            assert there[task.name][key] == json.loads(json.dumps(here[key])), key
    assert left_of(judges(cluster)) == []


async def test_no_more_jobs_than_slots_are_with_the_nodes(tmp_path: Path) -> None:
    with RayJudgePool(SLOW, {"folder": str(tmp_path)}, nodes=2, jobs_per_node=1) as pool:
        assert pool.capacity == 2
        await asyncio.gather(*(pool.judge(DOUBLE_TASK, "many 0.1") for _ in range(20)))
        assert len({process for process, _ in told(tmp_path, "many")}) == 2
        assert {at_once for _, at_once in told(tmp_path, "many")} == {1}


@pytest.mark.slow
async def test_a_job_lost_with_its_process_is_judged_again_once(tmp_path: Path) -> None:
    with RayJudgePool(SLOW, {"folder": str(tmp_path)}, nodes=1) as pool:
        job = asyncio.create_task(pool.judge(DOUBLE_TASK, "lost 1"))
        os.kill(await began(tmp_path, "lost"), signal.SIGKILL)
        assert (await job).task == DOUBLE_TASK.name
        assert len(told(tmp_path, "lost")) == 2

        job = asyncio.create_task(pool.judge(DOUBLE_TASK, "twice 600"))
        for times in (1, 2):
            os.kill(await began(tmp_path, "twice", times), signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="lost twice"):
            await job
        assert (await pool.judge(DOUBLE_TASK, "next 0")).task == DOUBLE_TASK.name
        assert len(told(tmp_path, "twice")) == 2


@pytest.mark.slow
async def test_jobs_lost_with_their_node_are_judged_once_more_on_another(
    cluster: Cluster, tmp_path: Path
) -> None:
    node = cluster.add_node(**NODE)
    with RayJudgePool(SLOW, {"folder": str(tmp_path)}, jobs_per_node=2) as pool:
        assert pool.capacity == 4
        names = [f"job{i}" for i in range(4)]
        jobs = [asyncio.create_task(pool.judge(DOUBLE_TASK, f"{name} 3")) for name in names]
        first = {name: await began(tmp_path, name) for name in names}
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        there = {process.pid for process in raylet.children(recursive=True)}
        await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)
        assert len(await asyncio.gather(*jobs)) == 4
        lost = {name for name in names if first[name] in there}
        assert len(lost) == 2
        assert {name for name in names if len(told(tmp_path, name)) == 2} == lost
        assert sum(len(told(tmp_path, name)) for name in names) == 6
        assert (await pool.judge(DOUBLE_TASK, "next 0")).task == DOUBLE_TASK.name
    await asyncio.to_thread(gone, node)


async def test_a_job_over_the_wall_limit_is_our_fault_and_frees_its_slot(tmp_path: Path) -> None:
    with RayJudgePool(SLOW, {"folder": str(tmp_path)}, nodes=1, job_wall_s=4) as pool:
        with pytest.raises(InfrastructureError, match="within 4 s"):
            await pool.judge(DOUBLE_TASK, "silent 600")
        assert (await pool.judge(DOUBLE_TASK, "after 0")).task == DOUBLE_TASK.name
        assert len(told(tmp_path, "silent")) == 1


async def test_errors_keep_their_class_and_a_closed_pool_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    pool = RayJudgePool(SLOW, {"folder": str(tmp_path)}, nodes=1)
    with pytest.raises(UsageError, match="correct it"):
        await pool.judge(DOUBLE_TASK, "wrong use")
    with pytest.raises(InfrastructureError, match="ZeroDivisionError"):
        await pool.judge(DOUBLE_TASK, "a bug")
    job = asyncio.create_task(pool.judge(DOUBLE_TASK, "open 600"))
    await began(tmp_path, "open")
    pool.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await job
    with pytest.raises(InfrastructureError, match="closed"):
        await pool.judge(DOUBLE_TASK, "late 0")
    assert left_of(judges(cluster)) == []


def test_what_a_cluster_cannot_do_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"no room for 1 judges of 64 .* 2 processors"):
        RayJudgePool(SLOW, jobs_per_node=64)
    with pytest.raises(InfrastructureError, match="could not start on its node"):
        RayJudgePool("support.ray_judges:nothing", nodes=1, jobs_per_node=1)


def test_a_cluster_that_is_not_there_is_wrong_use_or_our_fault(
    tmp_path: Path,
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"id": "a", "task": "relu", "code": "int x;"}\n')
    for address, status, said in (
        ("127.0.0.1:1", 3, "no Ray cluster answers at '127.0.0.1:1'"),
        ("nowhere", 2, "'nowhere' is no address of a Ray cluster"),
    ):
        command = [sys.executable, "-m", "coding_framework.cli", "judge-many", "--ray", address]
        command += ["--tasks-and-kernels", str(pairs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
        assert said in done.stderr


async def test_only_nodes_with_the_resource_judge_where_it_is_asked_for(tmp_path: Path) -> None:
    """Two pools, each with its part of the node."""
    how, folder = {"jobs_per_node": 1, "resource": "judge"}, {"folder": str(tmp_path)}
    with RayJudgePool(SLOW, folder, **how) as one, RayJudgePool(SLOW, folder, **how) as other:
        assert (one.capacity, other.capacity) == (1, 1)
        await asyncio.gather(*(p.judge(DOUBLE_TASK, "part 0") for p in (one, other)))
        assert len({process for process, _ in told(tmp_path, "part")}) == 2
    with pytest.raises(InfrastructureError, match=r"--num-cpus=0 --resources='\{\"none\": C"):
        RayJudgePool(SLOW, folder, resource="none")
