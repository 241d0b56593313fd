"""The users' documents' names of settings, defaults and environment variables."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from coding_framework.errors import UsageError
from coding_framework.training import recipes
from coding_framework.training.recipes import RecipeFile, rl_config
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.sft_config import SFTConfig
from coding_framework.training.verl.overrides import store_bytes

pytestmark = pytest.mark.unit


def test_configs_are_made_without_arguments_and_with_the_documents_names() -> None:
    assert SFTConfig().base_model == "Qwen/Qwen2.5-Coder-1.5B-Instruct"
    given = SFTConfig(qlora_r=16, qlora_alpha=32, qlora_dropout=0.1)
    assert (given.lora_r, given.lora_alpha, given.lora_dropout) == (16, 32, 0.1)
    assert MultiTurnRLConfig().model_path == "sft_checkpoints/model"
    rl = MultiTurnRLConfig(
        num_episodes=200, max_turns_per_episode=5, batch_size=32, learning_rate=1e-5,
        verl_algorithm="dapo", verl_rollout_batch_size=256, num_gpus=8, use_docker_sandbox=True,
    )  # fmt: skip
    assert (rl.algorithm, rl.max_turns, rl.prompts_per_step) == ("dapo", 5, 32)
    assert (rl.conversations_per_step, rl.samples_per_prompt) == (256, 8)
    assert rl.judge_args == {"sandbox": "docker"}
    assert MultiTurnRLConfig(use_docker_sandbox=False).judge_args == {"sandbox": "no-docker"}


def test_sizes_of_a_cpu_give_way_to_the_documents_names() -> None:
    assert SFTConfig.cpu(qlora_r=8).lora_r == 8
    rl = MultiTurnRLConfig.cpu(batch_size=3, verl_rollout_batch_size=6)
    assert (rl.prompts_per_step, rl.samples_per_prompt) == (3, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch_size": 4, "prompts_per_step": 4}, "two names of one setting"),
        ({"verl_rollout_batch_size": 33}, "a multiple of its 32 prompts"),
        ({"verl_rollout_batch_size": 64, "samples_per_prompt": 2}, "excludes samples_per_prompt"),
    ],
)
def test_names_that_contradict_each_other_are_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        MultiTurnRLConfig.model_validate(given)


def test_rays_variable_is_its_store() -> None:
    config = MultiTurnRLConfig(object_store_mib=512)
    assert store_bytes(config, {}) == 512 * 2**20
    assert store_bytes(config, {"RAY_OBJECT_STORE_MEMORY": "50000000000"}) == 50_000_000_000
    with pytest.raises(UsageError, match="RAY_OBJECT_STORE_MEMORY=50GB: set it to a number"):
        store_bytes(config, {"RAY_OBJECT_STORE_MEMORY": "50GB"})


def test_gpus_that_are_not_there_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "on_cpu", lambda device: device != "cuda")
    with pytest.raises(UsageError, match="8 GPUs were asked for and 0 are here"):
        rl_config(RecipeFile(), {"num_gpus": 8})
    assert rl_config(RecipeFile(device="cpu"), {"num_gpus": 2}).device == "cpu"
    assert rl_config(RecipeFile(device="cuda"), {"num_gpus": 8}).num_gpus == 8
