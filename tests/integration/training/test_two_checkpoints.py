"""An adapter for each role: SFT makes the two, and RL goes on from both, in real steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.model_folder import fine_tune
from coding_framework.run.recipe import Recipe, WholeRun
from coding_framework.store.folder import RLFolder, base_of_adapter
from coding_framework.training.sft_config import SFTConfig
from coding_framework.types import Role
from coding_framework.wiring import JudgeSettings
from support import tiny_rl, tiny_run
from support.tiny_run import finished, script

pytestmark = pytest.mark.integration


def per_role_sft(model: Path, output: Path) -> SFTConfig:
    return SFTConfig.cpu(
        base_model=str(model), output_dir=str(output), per_role=True, num_examples=3,
        optimizer_examples=2, epochs=1, max_steps=2, lora_r=4, held_out_examples=0,
        held_out_tasks=0, max_length=8192, max_task_ops=1, device="cpu",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_adapters_are_made_and_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", tiny_run.worker_path())
    model = tiny_rl.write_tiny_model(tmp_path / "model")
    config = per_role_sft(model, tmp_path / "sft")
    made = fine_tune(config, "starter", EvalOptions(), JudgeSettings(), resolve=Path)
    assert made.examples == {"generator": 3, "optimizer": 2}
    adapters = [tmp_path / "sft" / role / "adapter_model.safetensors" for role in made.adapters]
    weights = [file.read_bytes() for file in adapters]
    assert weights[0] != weights[1]
    assert fine_tune(config, "starter", EvalOptions(), JudgeSettings(), resolve=Path) == made

    output = tmp_path / "run"
    changes = {
        "policy": "per_role", "phase_steps": 1, "lora_rank": 4, "compute_dtype": "float32",
        "num_episodes": 2, "prompts_per_step": 1, "samples_per_prompt": 2, "stop_reward": None,
        "judge_args": {},
    }  # fmt: skip
    command = script(model, output, **changes)
    at = command.index("--generator-checkpoint")
    command[at + 1] = made.adapters["generator"]
    result = finished([*command, "--optimizer-checkpoint", made.adapters["optimizer"]])

    assert [(s.step, s.trained) for s in result.steps] == [(1, Role.GENERATOR), (2, Role.OPTIMIZER)]
    assert all(s.grad_norm is not None and s.grad_norm > 0 for s in result.steps)
    run, final = RLFolder(output), Path(result.final_model)
    assert Path(base_of_adapter(final / "generator")) == run.start_model
    assert Path(base_of_adapter(final / "optimizer")) == run.start_model_of(Role.OPTIMIZER)


def test_a_whole_run_says_that_it_trains_one_policy(tmp_path: Path) -> None:
    recipe = Recipe(device="cpu", sft={"per_role": True})
    whole = WholeRun(title="", recipe=recipe, folder=tmp_path, base_model="m")
    with pytest.raises(UsageError, match=r"run_sft_training\.py --per-role"):
        whole.sft_config("m")
