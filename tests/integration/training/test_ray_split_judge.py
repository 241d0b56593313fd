"""A judge in two halves on a Ray cluster: who compiles, what waits, what is done again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from coding_framework.cuda.device.gpu_sharing import gpus
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.training.verl import ray_cluster
from coding_framework.training.verl.ray_cluster import bench_layout, compiling_layout
from coding_framework.training.verl.ray_judge import Part, SplitRayJudgePool
from coding_framework.types import Candidate, Status
from support.judge_tasks import DOUBLE, DOUBLE_TASK, make_task
from support.ray_nodes import NODE, gone, joined, judges, patiently
from support.split_cases import BUILDS, CASES, essence, other_cache
from support.split_judges import node_id
from support.waiting import PATIENCE_S, left_of

pytestmark = [pytest.mark.integration, pytest.mark.ci]

TASK = make_task("double", "x * 2 + 1")  # without a naive kernel: one build a candidate
IN_HAND = 3
BENCH_NODE = {**NODE, "num_cpus": 1, "resources": {"bench_gpu": 1}}


@dataclass
class Watched:
    """A pool and what its halves wrote down."""

    pool: SplitRayJudgePool
    folder: Path
    bench_cache: Path

    def told(self, what: str, code: str) -> list[tuple[int, str]]:
        """(process, node) for each time that this was done to a candidate."""
        path, digest = self.folder / what, Candidate(code=code).sha256
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(p), n) for d, p, n in map(str.split, lines) if d == digest]

    async def began(self, what: str, code: str, times: int = 1) -> int:
        """Wait until this was done so often to a candidate; by which process."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.told(what, code)) < times:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        return self.told(what, code)[times - 1][0]


@pytest.fixture(scope="module", autouse=True)
def cluster(ray_cluster: Cluster) -> Iterator[Cluster]:
    """A node that compiles, and one with a GPU, as far as Ray knows."""
    patiently(lambda: ray_cluster.add_node(**BENCH_NODE))
    with joined(ray_cluster):
        yield ray_cluster
        for node in list(ray_cluster.worker_nodes):
            ray_cluster.remove_node(node)
            gone(node)


@pytest.fixture(scope="module")
def watched(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The real halves; the one that judges runs the emulator."""
    folder = tmp_path_factory.mktemp("watched")
    cache = other_cache(folder / "bench")
    same = {"backend": "emulator", "seed": 3, "secret": None, "folder": str(folder)}
    pool = SplitRayJudgePool(
        Part("support.split_judges:make_watched_compiler", same),
        Part("support.split_judges:make_watched_judge", {**same, "cache": str(cache)}),
        in_hand=IN_HAND,
    )
    with pool:
        yield Watched(pool, folder, cache)
    assert left_of(judges(cluster)) == []


def candidate(name: str) -> str:
    return f"{DOUBLE}// {name}\n"


@pytest.mark.skipif(bool(gpus()), reason="it would judge on the GPU that is here")
def test_the_command_judges_on_nodes_with_bench_gpu_by_itself(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Such a node without a GPU is our fault, and its candidates are not judged elsewhere; the
    emulator, asked for by name, runs as ever."""
    pairs = tmp_path / "pairs.jsonl"
    (tmp_path / "double.json").write_text(DOUBLE_TASK.model_dump_json())
    pairs.write_text(json.dumps({"id": "a", "task": "double.json", "code": DOUBLE}) + "\n")
    command = [sys.executable, "-m", "coding_framework.cli", "judge-many", "--workers", "1"]
    command += ["--tasks-and-kernels", str(pairs), "--ray", cluster.address, "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "no NVIDIA GPU is visible here" in done.stderr
    command += ["--backend", "emulator"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["status"] == "correct", done.stderr


def test_who_compiles_and_who_judges(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_layout(None)
    assert (bench.count, bench.places) == (1, 1)
    compiling = compiling_layout()
    assert (compiling.count, compiling.places) == (1, 2)
    assert compiling.options == {"num_cpus": 0, "resources": {"judge": 2}}
    with pytest.raises(UsageError, match="at least 1 processors for each unit"):
        bench_layout(2)
    monkeypatch.setattr(ray_cluster, "JUDGE", "resource of no node")
    compiling = compiling_layout()
    assert (compiling.count, compiling.places) == (1, 2)
    where = ray.remote(scheduling_strategy="SPREAD", **{**compiling.options, "num_cpus": 0})(
        node_id
    )
    (bench_node,) = cluster.worker_nodes
    assert bench_node.node_id not in ray.get([where.remote() for _ in range(4)])


async def test_verdicts_are_those_of_one_machine_and_the_bench_compiles_nothing(
    watched: Watched,
) -> None:
    found = await asyncio.gather(*(watched.pool.judge(*case) for case in CASES.values()))
    whole = Judge(JudgeConfig(backend="emulator", seed=3))
    for (name, (task, code)), verdict in zip(CASES.items(), found, strict=True):
        assert verdict.status.value == name.partition(",")[0]
        assert essence(verdict) == essence(whole.judge(task, Candidate(code=code)))
        assert {n for _, n in watched.told("compiled", code)}.isdisjoint(
            n for _, n in watched.told("judged", code)
        )
    assert watched.told("judged", CASES["compile_error"][1]) == []
    require_no_build(watched)


def require_no_build(watched: Watched) -> None:
    """On the node that judges: neither a build nor a slot that one would have waited for."""
    assert list(watched.bench_cache.glob(BUILDS)) == []
    assert not (watched.bench_cache / "slots").exists()


@pytest.mark.slow
async def test_compilations_wait_where_the_gpu_is_behind(watched: Watched) -> None:
    hold = watched.folder / "hold"
    hold.touch()
    codes = [candidate(f"many {i}") for i in range(IN_HAND + 2)]
    jobs = [asyncio.create_task(watched.pool.judge(TASK, code)) for code in codes]
    for code in codes[:IN_HAND]:
        await watched.began("compiled", code)
    await asyncio.sleep(3)  # longer than a compilation takes
    assert [len(watched.told("compiled", code)) for code in codes] == [1] * IN_HAND + [0, 0]
    assert sum(len(watched.told("judged", code)) for code in codes) == 1  # of one place
    hold.unlink()
    assert {v.status for v in await asyncio.gather(*jobs)} == {Status.CORRECT}
    assert [len(watched.told("judged", code)) for code in codes] == [1] * len(codes)
    require_no_build(watched)


@pytest.mark.slow
async def test_a_bench_that_is_lost_costs_one_more_run_and_no_compilation(
    watched: Watched,
) -> None:
    hold, code = watched.folder / "hold", candidate("lost")
    hold.touch()
    job = asyncio.create_task(watched.pool.judge(TASK, code))
    os.kill(await watched.began("judged", code), signal.SIGKILL)
    hold.unlink()
    assert (await job).status is Status.CORRECT
    first, second = (process for process, _ in watched.told("judged", code))
    assert first != second
    assert len(watched.told("compiled", code)) == 1


@pytest.mark.slow
async def test_a_candidate_that_is_lost_twice_is_our_fault(watched: Watched) -> None:
    hold, code = watched.folder / "hold", candidate("lost twice")
    hold.touch()
    job = asyncio.create_task(watched.pool.judge(TASK, code))
    for times in (1, 2):
        os.kill(await watched.began("judged", code, times), signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="lost twice with the process that judged it"):
        await job
    hold.unlink()
    assert len(watched.told("compiled", code)) == 1


@pytest.mark.slow
async def test_a_compiler_that_is_lost_compiles_once_more(watched: Watched) -> None:
    hold, code = watched.folder / "hold_compiler", candidate("compiler lost")
    hold.touch()
    job = asyncio.create_task(watched.pool.judge(TASK, code))
    os.kill(await watched.began("compiled", code), signal.SIGKILL)
    hold.unlink()
    assert (await job).status is Status.CORRECT
    assert len(watched.told("compiled", code)) == 2
    assert len(watched.told("judged", code)) == 1


@pytest.mark.slow
async def test_a_build_that_arrives_damaged_is_compiled_again_once(watched: Watched) -> None:
    damage, code = watched.folder / "damage", candidate("damaged")
    damage.touch()
    assert (await watched.pool.judge(TASK, code)).status is Status.CORRECT
    assert len(watched.told("compiled", code)) == 2

    damage.write_text("always")
    with pytest.raises(InfrastructureError, match="arrived damaged more than once"):
        await watched.pool.judge(TASK, candidate("always damaged"))
    damage.unlink()
    assert (await watched.pool.judge(TASK, candidate("after"))).status is Status.CORRECT


@pytest.mark.slow
async def test_a_bench_that_is_lost_with_its_node_comes_back_on_another(
    cluster: Cluster, watched: Watched
) -> None:
    hold, code = watched.folder / "hold", candidate("node lost")
    hold.touch()
    job = asyncio.create_task(watched.pool.judge(TASK, code))
    await watched.began("judged", code)
    (node,) = cluster.worker_nodes
    cluster.add_node(**BENCH_NODE)
    await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)
    await watched.began("judged", code, 2)
    hold.unlink()
    assert (await job).status is Status.CORRECT
    first, second = (node for _, node in watched.told("judged", code))
    assert first != second
    assert len(watched.told("compiled", code)) == 1
