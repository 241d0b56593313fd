"""RL on a Ray cluster that somebody else started: one node trains, another judges and offers Ray no
processors, so that nothing else of the run goes there. Both nodes are on this machine."""

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
