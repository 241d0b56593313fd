"""verl's trainer for rollout GPUs of their own, on a CPU: all of it but NCCL and vLLM."""

from __future__ import annotations

import math
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from coding_framework.store.folder import RLFolder
from coding_framework.store.training_log import read_metrics
from coding_framework.training.verl.overrides import _hydra, _rollout_apart
from coding_framework.training.verl.process import run_processes
from support import tiny_rl, tiny_run
from support.tiny_run import finished
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
PROMPTS, STEPS = 4, 3
ENGINE = "actor_rollout_ref.rollout.checkpoint_engine"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run of a few steps in tmp_path/run."""
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())
    monkeypatch.setenv("WEIGHTS_BY_FILE", str(tmp_path))
    sizes = SimpleNamespace(rollout_gpus=1, prompts_per_step=PROMPTS)
    overrides = {
        **_rollout_apart(sizes),  # type: ignore[arg-type]
        f"{ENGINE}.backend": "by_file",
        f"{ENGINE}.custom_backend_module": "support.weights_by_file",
        "++ray_kwargs.ray_init.num_gpus": 2,
        "++ray_kwargs.ray_init.num_cpus": 16,
    }
    return tiny_run.script(
        tiny_rl.write_tiny_model(tmp_path / "model"), tmp_path / "run",
        overrides=[f"{key}={_hydra(value)}" for key, value in overrides.items()],
        prompts_per_step=PROMPTS, samples_per_prompt=4, max_turns=2, num_episodes=STEPS,
        learning_rate=3e-3, reuse_rollout_logprobs=False,
    )  # fmt: skip


def weights_were_those_of_the_step_before(folder: Path) -> None:
    """In the last attempt."""
    metrics = read_metrics(RLFolder(folder).attempts()[-1].metrics)
    assert STEPS in metrics
    for step in metrics.values():
        assert step["training/rollout_actor_probs_pearson_corr"] > 0.999
        assert step["training/off_policy/trajectory_staleness/max"] == 0


def test_each_step_is_answered_by_the_weights_of_the_step_before(
    command: list[str], tmp_path: Path
) -> None:
    result = finished(command)
    assert [step.step for step in result.steps] == list(range(1, STEPS + 1))
    assert all(math.isfinite(step.grad_norm or 0.0) for step in result.steps)
    assert all(step.grad_norm for step in result.steps)
    assert len(RLFolder(tmp_path / "run").attempts()) == 1
    weights_were_those_of_the_step_before(tmp_path / "run")


def test_a_killed_run_goes_on_with_the_weights_of_its_last_step(
    command: list[str], tmp_path: Path
) -> None:
    steps = tmp_path / "run" / "steps.jsonl"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as caller:
        try:
            until(lambda: steps.exists() or caller.poll() is not None, "the first step")
        finally:
            caller.send_signal(signal.SIGKILL)
    assert steps.exists(), "the trainer ended before its first step"
    run = str((tmp_path / "run").resolve())
    until(lambda: not run_processes(run), "the end of the killed run's processes")

    result = finished(command)

    assert 1 <= result.resumed_from < STEPS
    assert [step.step for step in result.steps] == list(range(1, STEPS + 1))
    assert all(step.grad_norm for step in result.steps)
    weights_were_those_of_the_step_before(tmp_path / "run")
