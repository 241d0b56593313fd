"""verl's trainer for rollout GPUs of their own, on a CPU: all of it but NCCL and vLLM."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from coding_framework.store.folder import RLFolder
from coding_framework.store.training_log import read_metrics
from coding_framework.training.verl.overrides import _hydra, _rollout_apart
from coding_framework.training.verl_integration import MultiAgentVERLTrainer, MultiTurnRLConfig
from support import tiny_rl, tiny_run

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
PROMPTS, STEPS = 4, 3
ENGINE = "actor_rollout_ref.rollout.checkpoint_engine"


def test_each_step_is_answered_by_the_weights_of_the_step_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the weights' files
    sizes = SimpleNamespace(rollout_gpus=1, prompts_per_step=PROMPTS)
    overrides = {
        **_rollout_apart(sizes),  # type: ignore[arg-type]
        f"{ENGINE}.backend": "by_file",
        f"{ENGINE}.custom_backend_module": "support.weights_by_file",
        "++ray_kwargs.ray_init.num_gpus": 2,
        "++ray_kwargs.ray_init.num_cpus": 16,
    }
    changes = {
        "prompts_per_step": PROMPTS, "samples_per_prompt": 4, "max_turns": 2, "num_episodes": STEPS,
        "learning_rate": 3e-3, "reuse_rollout_logprobs": False,
    }  # fmt: skip
    config = MultiTurnRLConfig.cpu(
        model_path=str(tiny_rl.write_tiny_model(tmp_path / "model")),
        output_dir=str(tmp_path / "run"),
        overrides=tuple(f"{key}={_hydra(value)}" for key, value in overrides.items()),
        **{**tiny_run.SIZES, **changes},
    )

    result = asyncio.run(MultiAgentVERLTrainer(config, tasks=tiny_rl.tiny_tasks(5)).train())

    assert [step.step for step in result.steps] == list(range(1, STEPS + 1))
    assert all(math.isfinite(step.grad_norm or 0.0) for step in result.steps)
    assert all(step.grad_norm for step in result.steps)
    (attempt,) = RLFolder(tmp_path / "run").attempts()
    metrics = read_metrics(attempt.metrics)
    for step in metrics:
        assert metrics[step]["training/rollout_actor_probs_pearson_corr"] > 0.999
        assert metrics[step]["training/off_policy/trajectory_staleness/max"] == 0
