"""RL on a Ray cluster that somebody else started, with two nodes on this machine: one node trains,
and another judges and offers Ray no processors, so that nothing else of the run goes there; or both
train."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coding_framework.training.rl_config import MultiTurnRLConfig

pytest.importorskip("ray")

from ray.cluster_utils import Cluster

from support import tiny_rl, tiny_run
from support.tiny_run import SIZES, finished, script

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 2
NODE = {"include_dashboard": False, "object_store_memory": 80 << 20}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())
    monkeypatch.setenv("RAY_prestart_worker_first_driver", "0")
    made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 20, "num_gpus": 1})
    yield made
    made.shutdown()


def test_a_run_joins_a_cluster_and_judges_on_the_node_that_is_for_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    judging = cluster.add_node(**NODE, num_cpus=0, num_gpus=0, resources={"judge": 2})
    model = tiny_rl.write_tiny_model(tmp_path / "model")
    told = tmp_path / "told"
    told.mkdir()
    command = script(
        model, tmp_path / "run", num_episodes=STEPS, ray_address=cluster.address,
        judge="support.tiny_rl:make_telling_judge", judge_args={"folder": str(told)},
        judge_nodes=1, judge_jobs_per_node=2,
    )  # fmt: skip
    result = finished(command)
    assert [step.step for step in result.steps] == [1, 2]
    settings = MultiTurnRLConfig.cpu(
        model_path=str(model), output_dir=str(tmp_path / "run"), **{**SIZES, "num_episodes": STEPS}
    )
    for step in result.steps:
        assert step.conversations == settings.conversations_per_step
        assert step.faults == 0
    assert {path.name for path in told.iterdir()} == {judging.node_id}


def test_two_nodes_train_one_policy(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_node(**NODE, num_cpus=20, num_gpus=1)
    model, output = tiny_rl.write_tiny_model(tmp_path / "model"), tmp_path / "run"
    command = script(model, output, num_episodes=STEPS, ray_address=cluster.address, num_nodes=2)
    result = finished(command)
    assert [step.step for step in result.steps] == [1, 2]
    assert all(step.grad_norm for step in result.steps)
    # Each node has one place for a training process, and each process wrote its shard.
    shards = {path.name for path in output.rglob("model_world_size_2_rank_*.pt")}
    assert shards == {f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)}
