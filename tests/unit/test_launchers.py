"""The launchers beside `examples/launch/node.sh`: they name what is there."""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.unit

LAUNCH = Path(__file__).parents[2] / "examples/launch"
FIRST = "10.213.7.1"


@pytest.mark.parametrize(
    ("role", "token", "said"),
    [
        ("judges", "secret", "the role is first, train or judge, not judges"),
        (
            "judge",
            "",
            "RAY_AUTH_TOKEN: a secret that all nodes share, as openssl rand -hex 32 gives",
        ),
    ],
)
def test_what_a_node_cannot_run_with_is_told(role: str, token: str, said: str) -> None:
    ran = subprocess.run(
        ["bash", LAUNCH / "node.sh", role, FIRST],
        env={"PATH": os.environ["PATH"], "RAY_AUTH_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert ran.stderr.endswith(f"{said}\n")


@pytest.mark.parametrize("name", ["sky.yaml", "kuberay.yaml"])
def test_the_files_name_what_is_there(name: str) -> None:
    text = (LAUNCH / name).read_text()
    found: Any = yaml.safe_load(text)
    assert found
    for path in ("configs/several_nodes.yaml", "launch_complete_cuda_training.py"):
        assert path in text
        assert (LAUNCH.parents[1] / path).exists()


def test_kuberay_starts_what_the_dry_run_names() -> None:
    cluster = yaml.safe_load((LAUNCH / "kuberay.yaml").read_text())["spec"]["rayClusterSpec"]
    recipe = yaml.safe_load((LAUNCH.parents[1] / "configs/several_nodes.yaml").read_text())["rl"]
    assert cluster["rayVersion"] == version("ray")
    train, judge = cluster["workerGroupSpecs"]
    assert train["replicas"] + 1 == recipe["num_nodes"]
    assert judge["replicas"] == recipe["judge_nodes"]
    assert judge["rayStartParams"]["num-cpus"] == "0"
    jobs = f'\\"judge\\": {recipe["judge_jobs_per_node"]}'
    assert jobs in judge["rayStartParams"]["resources"]
    for group in (cluster["headGroupSpec"], train):
        assert group["rayStartParams"]["num-gpus"] == str(recipe["num_gpus"])
