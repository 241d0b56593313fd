"""The launchers' node script over two hosts: network namespaces of this machine, which share files
alone. One trains, and the other judges and offers Ray no processors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from coding_framework.training.verl_integration import RLResult

pytest.importorskip("ray")

from support import tiny_rl, tiny_run
from support.tiny_run import script

pytestmark = pytest.mark.integration

LAUNCH = Path(__file__).parents[3] / "examples/launch"
FIRST, OTHER = "10.213.7.1", "10.213.7.2"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Names of two namespaces with a cable between them."""
    names = (f"first{os.getpid()}", f"other{os.getpid()}")
    try:
        for name in names:
            _ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network namespaces may be made here")
    _ip("link", "add", "cable0", "netns", names[0], "type", "veth", "peer", "cable1", "netns", names[1])  # fmt: skip  # noqa: E501
    for name, cable, address in zip(names, ("cable0", "cable1"), (FIRST, OTHER), strict=True):
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
        _ip("-n", name, "link", "set", cable, "up")
    yield names
    for name in names:
        _ip("netns", "delete", name)


def _on(host: str, *command: str, **settings: str) -> subprocess.Popen[str]:
    """The node script on a host, which sees no process of another; it ends with its namespace."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    inside = ["ip", "netns", "exec", host, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]  # fmt: skip  # noqa: E501
    return subprocess.Popen(
        [*inside, "bash", str(LAUNCH / "node.sh"), *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": tiny_run.worker_path(), "OBJECT_STORE_MIB": "80",
             "PATH": path,
             "RAY_prestart_worker_first_driver": "0", **settings},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_trains_on_one_host_and_judges_on_the_other(
    hosts: tuple[str, str], tmp_path: Path
) -> None:
    model = tiny_rl.write_tiny_model(tmp_path / "model")
    told = tmp_path / "told"
    told.mkdir()
    command = script(
        model, tmp_path / "run", num_episodes=2, ray_address="auto",
        judge="support.tiny_rl:make_telling_judge", judge_args={"folder": str(told)},
        judge_nodes=1, judge_jobs_per_node=2,
    )  # fmt: skip
    first, other = hosts
    judging = _on(other, "judge", FIRST, SELF=OTHER, JUDGE_JOBS="2")
    training = _on(first, "first", FIRST, *command, NODES="2", GPUS="1")
    printed, said = training.communicate(timeout=800)
    judging.kill()
    assert training.returncode == 0, said[-3000:]
    result = RLResult.model_validate_json(printed[printed.index("\n{") :])
    assert [step.step for step in result.steps] == [1, 2]
    assert all(step.faults == 0 for step in result.steps)
    assert len(list(told.iterdir())) == 1


def test_a_role_that_does_not_exist_is_told() -> None:
    ran = subprocess.run(
        ["bash", LAUNCH / "node.sh", "judges", FIRST], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (2, "the role is first, train or judge, not judges\n")


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
    train, judge = cluster["workerGroupSpecs"]
    assert train["replicas"] + 1 == recipe["num_nodes"]
    assert judge["replicas"] == recipe["judge_nodes"]
    assert judge["rayStartParams"]["num-cpus"] == "0"
    jobs = f'\\"judge\\": {recipe["judge_jobs_per_node"]}'
    assert jobs in judge["rayStartParams"]["resources"]
    for group in (cluster["headGroupSpec"], train):
        assert group["rayStartParams"]["num-gpus"] == str(recipe["num_gpus"])
