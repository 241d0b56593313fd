"""RL on two GPUs: one trains, the other writes answers or judges, and does nothing else.

With verl, vLLM and CuPy (`uv sync --extra verl`), and a tiny random model.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch

from coding_framework.store.conversations import run_rollouts
from coding_framework.store.folder import RLFolder
from coding_framework.store.training_log import read_metrics
from coding_framework.training.verl_integration import RLResult
from support import tiny_rl, tiny_run
from support.tiny_run import finished, script

MISSING = [name for name in ("vllm", "cupy") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.integration,
    pytest.mark.cuda,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}: uv sync --extra verl"),
]
STEPS = 6
SIZES: dict[str, object] = {
    "num_episodes": STEPS,
    "prompts_per_step": 4,
    "samples_per_prompt": 4,
    "max_turns": 2,
    "learning_rate": 3e-3,
    "num_gpus": 1,
    "rollout_workers": 2,
    "gpu_memory_utilization": 0.3,
    "judge_args": {},
}
AGREE = 0.97
"""Correlation of the probabilities that the server and the trainer give to the tokens of a step.
The server's of an older policy would have less: six steps at this rate make another policy."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Heads of 64, which each of vLLM's attention kernels knows.
    return tiny_rl.write_tiny_model(tmp_path_factory.mktemp("tiny") / "model", hidden_size=256)


@pytest.fixture(autouse=True)
def worker_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())


def steps_were_made(result: RLResult) -> None:
    assert [step.step for step in result.steps] == list(range(1, STEPS + 1))
    for step in result.steps:
        assert step.conversations == SIZES["prompts_per_step"] * SIZES["samples_per_prompt"]
        assert step.faults == 0
        assert step.grad_norm is not None
        assert math.isfinite(step.grad_norm)
    assert any(step.grad_norm > 0 for step in result.steps)


def test_a_gpu_that_only_writes_has_the_weights_of_the_step_before(
    model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    changes = {**SIZES, "rollout_gpus": 1, "reuse_rollout_logprobs": False}

    result = finished(script(model, output, device="cuda", **changes))

    steps_were_made(result)
    (attempt,) = RLFolder(output).attempts()
    metrics = read_metrics(attempt.metrics)
    agreement = [metrics[s]["training/rollout_actor_probs_pearson_corr"] for s in sorted(metrics)]
    assert len(agreement) == STEPS
    assert min(agreement) > AGREE, agreement


def test_a_gpu_that_only_judges_times_the_kernels(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    judge = {
        "judge": "coding_framework.wiring:make_judge", "judge_args": {"sandbox": "auto"},
        "agents": "support.tiny_rl:make_kernel_agents", "reward": None,
        "reward_preset": "milestones",
    }  # fmt: skip

    result = finished(script(model, output, device="cuda", **{**SIZES, **judge, "judge_gpus": 1}))

    steps_were_made(result)
    verdicts = [turn.verdict for r in run_rollouts(output) for turn in r.state.turns]
    assert all(v is not None and v.backend == "cuda" for v in verdicts)
    timed = [v.timing for v in verdicts if v is not None and v.correct]
    assert timed, "no kernel was right"
    assert all(t is not None and not t.modelled and t.kernel_ms > 0 for t in timed)
    paid = {t.reward.total for r in run_rollouts(output) for t in r.state.turns if t.reward}
    assert len(paid) > 2, "the rewards do not rest on the times"
