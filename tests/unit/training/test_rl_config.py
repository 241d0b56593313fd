"""The configuration of RL, and what verl is told by it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from coding_framework.errors import UsageError
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.folder import AttemptFolder
from coding_framework.training.objective import objective
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.dry_run import validated
from coding_framework.training.verl.episode_spec import EpisodeSpec, episode_spec
from coding_framework.training.verl.overrides import (
    CLUSTER_VARIABLES,
    RunPaths,
    files_below,
    hydra_overrides,
    ray_options,
)
from coding_framework.training.verl.process import trainer_environment

pytestmark = pytest.mark.unit

PATHS = RunPaths(
    dataset=Path("/run/prompts.jsonl"),
    checkpoints=Path("/run/my run/checkpoints"),
    ray_temp=Path("/tmp/ray"),
)
PER_ROLE = {"policy": "per_role", "lora_rank": 8}


def overrides(config: MultiTurnRLConfig, paths: RunPaths = PATHS) -> dict[str, str]:
    config = config.model_copy(update={"compute_dtype": "bfloat16"})
    return dict(line.split("=", 1) for line in hydra_overrides(config, paths))


def spec_of(config: MultiTurnRLConfig, folder: Path) -> EpisodeSpec:
    return episode_spec(
        config, ConversationConfig(max_turns=2, stop_reward=None), objective(config),
        output=folder, attempt=AttemptFolder(folder), resume=None,
    )  # fmt: skip


def test_defaults_are_the_documents_recipe() -> None:
    config = MultiTurnRLConfig(model_path="m")
    assert (config.num_episodes, config.max_turns, config.learning_rate) == (200, 5, 1e-5)
    assert config.conversations_per_step == 128


def test_cpu_sizes_can_be_changed_one_by_one() -> None:
    config = MultiTurnRLConfig.cpu(model_path="m", num_episodes=7)
    assert (config.device, config.num_episodes, config.rows_per_step) == ("cpu", 7, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unknown": 1}, "Extra inputs"),
        ({"samples_per_prompt": 1}, "greater than or equal to 2"),
        ({"micro_batch_tokens": 100}, "less than a row of"),
        ({"clip_ratio_low": 1.0}, "less than 1"),
        ({"algorithm": "dapo", "overlong_buffer_tokens": 1024}, "leaves nothing of the 1024"),
        ({"device": "cpu", "num_nodes": 2}, "set ray_address"),
        ({"role_rewards": {"tester": {"performance": 1.0}}}, "it takes no turn"),
        ({"role_rewards": {"optimizer": {"performance": 1.0}}, "reward": "a:b"}, "leave one out"),
        ({"tester": True, "judge": "a:b"}, "runs no probes"),
        ({"phase": {"role": "generator", "until": 1}}, "set policy=per_role"),
        ({"policy": "per_role"}, "set --lora-rank"),
        ({**PER_ROLE, "algorithm": "ppo"}, "goes with grpo or dapo"),
        ({**PER_ROLE, "max_turns": 1}, "the optimizer never speaks"),
        ({**PER_ROLE, "num_episodes": 10}, "would train one role alone"),
        ({**PER_ROLE, "ray_address": "auto"}, "leave out ray_address"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MultiTurnRLConfig.model_validate({"model_path": "m", **changes})


def test_one_update_a_step_over_all_rows_of_all_turns() -> None:
    given = overrides(MultiTurnRLConfig(model_path="m", prompts_per_step=8, max_turns=3))
    # verl multiplies by the samples of a prompt itself, and counts rows: 8 * 3 * samples.
    assert given["actor_rollout_ref.actor.ppo_mini_batch_size"] == "24"
    assert given["data.train_batch_size"] == "8"
    assert given["actor_rollout_ref.actor.use_dynamic_bsz"] == "True"


def test_phase_ends_before_the_steps_that_its_role_has_in_all() -> None:
    """Its file of prompts is the whole one, in which the loader goes on from phase to phase."""
    phase = {"role": "optimizer", "until": 30}
    config = MultiTurnRLConfig(model_path="m", num_episodes=100, phase=phase, **PER_ROLE)
    assert overrides(config)["trainer.total_training_steps"] == "30"
    assert config.prompts_in_file == 100 * config.prompts_per_step
    assert overrides(MultiTurnRLConfig(model_path="m"))["trainer.total_training_steps"] == "200"


def test_cpu_and_gpu_differ_in_rollout_and_ray() -> None:
    cpu = overrides(MultiTurnRLConfig.cpu(model_path="m"))
    gpu = overrides(MultiTurnRLConfig(model_path="m", num_gpus=4))
    root = "actor_rollout_ref.rollout.name"
    assert (cpu[root], gpu[root]) == ("cpu_batched", "vllm")
    assert (cpu["trainer.device"], gpu["trainer.device"]) == ("cpu", "cuda")
    assert ray_options(MultiTurnRLConfig.cpu(model_path="m"), PATHS)["num_gpus"] == 1
    assert gpu["trainer.n_gpus_per_node"] == "4"


@pytest.mark.parametrize(("device", "seeded"), [("cpu", True), ("cuda", False)])
def test_answers_have_seeds_of_their_own_where_they_repeat(
    tmp_path: Path, device: str, seeded: bool
) -> None:
    config = MultiTurnRLConfig.model_validate({"model_path": "m", "device": device})
    spec = spec_of(config, tmp_path)
    assert spec.seeded is seeded
    assert spec.whole_answers is not seeded


@pytest.mark.parametrize(
    "told", [{"one_step_off_policy": True}, {"rollout_gpus": 1, "num_gpus": 1}], ids=str
)
def test_answers_come_token_by_token_where_weights_may_come_meanwhile(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    config = MultiTurnRLConfig.model_validate({"model_path": "m", "device": "cuda", **told})
    spec = spec_of(config, tmp_path)
    assert spec.whole_answers is False


@pytest.mark.parametrize(
    ("steps", "expected"), [(0, [1.0, 1.0, 1.0, 1.0]), (2, [0.0, 0.5, 1.0, 1.0])]
)
def test_rate_grows_over_the_warm_up_and_then_stays(steps: int, expected: list[float]) -> None:
    """By verl's own scheduler, from verl's own configuration."""
    import torch
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    config = MultiTurnRLConfig(
        model_path="m", learning_rate=2e-6, warmup_steps=steps, weight_decay=0.1,
        num_episodes=3, compute_dtype="bfloat16",
    )  # fmt: skip
    optim = omega_conf_to_dataclass(validated(config).actor_rollout_ref.actor.optim)
    optim.total_training_steps = config.num_episodes
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=optim.lr)
    engine = SimpleNamespace(optimizer_config=optim, rank=1)
    scheduler = FSDPEngine._build_lr_scheduler(engine, optimizer)
    rates = []
    for _ in expected:
        rates.append(optimizer.param_groups[0]["lr"] / 2e-6)
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx(expected)
    assert optim.weight_decay == 0.1


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_runs_prompts_reach_the_workers(tmp_path: Path, version: str) -> None:
    config = MultiTurnRLConfig.model_validate({"model_path": "m", "prompts": version})
    spec = spec_of(config, tmp_path)
    assert spec.specialization.prompts == version


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1"),  # no plan of attention for each length
        ("VLLM_V1_OUTPUT_PROC_CHUNK_SIZE", "8"),  # no half of the answers held back to the end
    ],
)
def test_what_makes_training_on_a_gpu_fast_is_set_and_gives_way_to_the_users(
    tmp_path: Path, name: str, ours: str
) -> None:
    config = MultiTurnRLConfig(model_path="m", device="cuda")
    assert trainer_environment(config, tmp_path, tmp_path, tmp_path, {})[name] == ours
    said = {name: "0"}
    assert trainer_environment(config, tmp_path, tmp_path, tmp_path, said)[name] == "0"
    assert name in CLUSTER_VARIABLES


def test_runs_of_one_machine_have_a_token_each_and_a_clusters_stays_its_own(tmp_path: Path) -> None:
    config = MultiTurnRLConfig(model_path="m", device="cuda")
    one, two = (trainer_environment(config, tmp_path, tmp_path, tmp_path, {}) for _ in range(2))
    assert one["RAY_AUTH_MODE"] == two["RAY_AUTH_MODE"] == "token"
    assert one["RAY_AUTH_TOKEN"] != two["RAY_AUTH_TOKEN"]
    joined = config.model_copy(update={"ray_address": "auto"})
    assert "RAY_AUTH_TOKEN" not in trainer_environment(joined, tmp_path, tmp_path, tmp_path, {})


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("gpus", [1, 4, 64])
def test_ray_has_slots_for_all_that_verl_places_on_many_gpus(device: str, gpus: int) -> None:
    """3 of each GPU's place, 3 of its trainer's actors and one of each rollout worker; with too few
    they wait for each other without a word."""
    config = MultiTurnRLConfig.model_validate(
        {"model_path": "m", "num_gpus": gpus, "device": device}
    )
    assert ray_options(config, PATHS)["num_cpus"] > 3 * gpus + 3 + config.rollout_workers


def test_of_rays_settings_those_of_its_memory_watch_reach_it(tmp_path: Path) -> None:
    config = MultiTurnRLConfig(model_path="m", device="cuda")
    said = {"RAY_memory_monitor_refresh_ms": "0", "RAY_ADDRESS": "10.0.0.1:6379"}
    found = trainer_environment(config, tmp_path, tmp_path, tmp_path, said)
    assert found["RAY_memory_monitor_refresh_ms"] == "0"
    assert "RAY_ADDRESS" not in found


def test_ray_never_joins_an_instance_that_happens_to_run() -> None:
    assert ray_options(MultiTurnRLConfig.cpu(model_path="m"), PATHS)["address"] == "local"
    gpu = MultiTurnRLConfig(model_path="m")
    assert overrides(gpu)["+ray_kwargs.ray_init.address"] == "local"
    joined = overrides(gpu.model_copy(update={"ray_address": "auto"}))
    assert joined["+ray_kwargs.ray_init.address"] == "auto"


def test_verls_queue_is_held_by_one_process_a_training_node() -> None:
    units = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
    gpu = MultiTurnRLConfig(model_path="m")
    assert overrides(gpu)[units] == "1"
    cluster = gpu.model_copy(update={"ray_address": "auto", "num_nodes": 2})
    assert overrides(cluster)[units] == "2"


def test_resume_names_the_checkpoint() -> None:
    resumed = PATHS.model_copy(update={"resume_from": Path("/run/checkpoints/global_step_3")})
    given = overrides(MultiTurnRLConfig.cpu(model_path="m"), resumed)
    assert given["trainer.resume_mode"] == "resume_path"
    assert given["trainer.resume_from_path"] == "/run/checkpoints/global_step_3"
    assert overrides(MultiTurnRLConfig.cpu(model_path="m"))["trainer.resume_mode"] == "disable"


def test_paths_with_spaces_are_quoted_for_hydra() -> None:
    given = overrides(MultiTurnRLConfig.cpu(model_path="/a model"))
    assert given["trainer.default_local_dir"] == '"/run/my run/checkpoints"'
    assert given["actor_rollout_ref.model.path"] == '"/a model"'


def test_hydra_keeps_its_log_with_the_run() -> None:
    assert files_below(Path("/run/my run/000"))[0] == 'hydra.run.dir="/run/my run/000"'


def test_users_overrides_come_last() -> None:
    config = MultiTurnRLConfig.cpu(
        model_path="m", compute_dtype="float32", overrides=("trainer.save_freq=9",)
    )
    assert hydra_overrides(config, PATHS)[-1] == "trainer.save_freq=9"


@pytest.mark.parametrize(
    "config",
    [
        MultiTurnRLConfig.cpu(
            model_path="/a model", lora_rank=8, kl_coefficient=0.02, compute_dtype="bfloat16"
        ),
        MultiTurnRLConfig.cpu(model_path="m", algorithm="dapo", compute_dtype="float32"),
        MultiTurnRLConfig.cpu(
            model_path="m", kl_coefficient=0.05, kl_in_advantage=True, compute_dtype="float32"
        ),
        MultiTurnRLConfig.cpu(model_path="m", algorithm="ppo", compute_dtype="float32"),
        MultiTurnRLConfig(model_path="m", algorithm="ppo", num_gpus=8, compute_dtype="bfloat16"),
    ],
    ids=["cpu-lora-kl", "cpu-dapo", "cpu-kl-in-advantage", "cpu-ppo", "eight-gpus-ppo"],
)
def test_verls_own_configuration_accepts_every_override(config: MultiTurnRLConfig) -> None:
    """Hydra composes verl's schema with them: a name that verl does not know is an error."""
    composed = validated(config)
    assert composed.actor_rollout_ref.rollout.agent.agent_loop_manager_class.endswith("Manager")
    assert composed.actor_rollout_ref.actor.optim.lr == config.learning_rate
    assert composed.actor_rollout_ref.actor.clip_ratio_high == config.clip_high
    assert composed.algorithm.filter_groups.enable == (config.algorithm == "dapo")
    if config.algorithm == "ppo":
        assert (composed.algorithm.lam, composed.algorithm.gamma) == (0.95, 1.0)
        assert composed.critic.strategy == "fsdp2"
        limit = composed.critic.ppo_infer_max_token_len_per_gpu
        assert limit == config.tokens_per_micro_batch


def test_the_kl_divergence_is_in_the_loss_or_in_the_advantages() -> None:
    both = {"model_path": "m", "kl_coefficient": 0.05}
    in_loss = overrides(MultiTurnRLConfig.cpu(**both))
    in_advantages = overrides(MultiTurnRLConfig.cpu(**both, kl_in_advantage=True))
    loss, own = "actor_rollout_ref.actor.use_kl_loss", "+algorithm.turn_groups.kl_in_advantage"
    assert (in_loss[loss], in_loss[own]) == ("True", "0.0")
    assert "algorithm.use_kl_in_reward" not in in_loss
    assert (in_advantages[loss], in_advantages[own]) == ("False", "0.05")
    # verl makes the reference for it, and puts nothing of it into the returns
    assert in_advantages["algorithm.use_kl_in_reward"] == "True"
    assert in_advantages["algorithm.kl_ctrl.kl_coef"] == "0.0"
    for wrong in ({}, {"kl_coefficient": 0.05, "algorithm": "ppo"}):
        with pytest.raises(ValueError, match="kl_in_advantage is what kl_coefficient weighs"):
            MultiTurnRLConfig.cpu(model_path="m", kl_in_advantage=True, **wrong)


def test_what_verl_refuses_is_one_sentence() -> None:
    config = MultiTurnRLConfig.cpu(
        model_path="m", compute_dtype="float32", overrides=("trainer.no_such_option=1",)
    )
    with pytest.raises(UsageError, match=r"verl refuses this configuration: .*no_such_option"):
        validated(config)


def test_each_algorithm_has_its_clip_and_its_shaping() -> None:
    made = {
        name: MultiTurnRLConfig.cpu(model_path="m", algorithm=name, max_response_tokens=500)
        for name in ("grpo", "dapo", "ppo")
    }
    assert {n: c.clip_high for n, c in made.items()} == {"grpo": 0.2, "dapo": 0.28, "ppo": 0.2}
    assert {n: c.overlong_buffer for n, c in made.items()} == {"grpo": 0, "dapo": 100, "ppo": 0}
    assert made["dapo"].prompts_in_file == 10 * made["grpo"].prompts_in_file
    assert MultiTurnRLConfig(model_path="m", algorithm="ppo", samples_per_prompt=1)


@pytest.mark.parametrize(
    ("preset", "stops"),
    [("weighted", 0.8), ("gated", 0.8), ("correct", 1.0), ("kevin", None), ("milestones", None)],
)
def test_a_conversation_stops_at_what_its_own_preset_calls_enough(preset, stops):
    """0.8 of `weighted` is a fast kernel; of `kevin` it would be half of eager's speed."""
    told = {"reward_preset": preset, "judge_gpus": 1}
    assert MultiTurnRLConfig(**told).stop_reward == stops
    assert MultiTurnRLConfig(**told, stop_reward=0.5).stop_reward == 0.5
    again = MultiTurnRLConfig.model_validate(MultiTurnRLConfig(**told).model_dump())
    assert again.stop_reward == stops


def test_a_preset_of_measured_times_needs_somebody_who_measures() -> None:
    for modelled in ({}, {"device": "cpu"}, {"judge_args": {"backend": "emulator"}}):
        with pytest.raises(ValueError, match="pays measured times, and the emulator models them"):
            MultiTurnRLConfig(reward_preset="milestones", **modelled)
    for measured in (
        {"judge_gpus": 1}, {"judge_args": {"backend": "cuda"}}, {"judge": "mine:judge"},
        {"judge_nodes": 1, "ray_address": "auto", "judge_jobs_per_node": 4},
        {"reward": "mine:reward"},
    ):  # fmt: skip
        assert MultiTurnRLConfig(reward_preset="milestones", **measured)


def test_what_would_never_change_the_policy_is_refused() -> None:
    """A group is of one prompt and one turn."""
    with pytest.raises(ValueError, match="a step has at most 4 groups, one for each turn"):
        MultiTurnRLConfig(prompts_per_step=4, max_turns=1, least_groups=5)
    with pytest.raises(ValueError, match="a step has at most 8 groups"):
        MultiTurnRLConfig(prompts_per_step=4, max_turns=2, least_groups=9)
    assert MultiTurnRLConfig(prompts_per_step=4, max_turns=2, least_groups=8).groups_needed == 8
    with pytest.raises(ValueError, match="would weigh down each token"):
        MultiTurnRLConfig(importance_cap=0.5)
    with pytest.raises(ValueError, match="redraws are of later turns"):
        MultiTurnRLConfig(max_turns=1, redraws=2)


def test_weights_stay_float32_where_products_are_bfloat16(tmp_path):
    """A step of 4e-5 vanishes in a bfloat16 weight of 0.02, whose last bit is 1.2e-4."""
    paths = RunPaths(dataset=tmp_path, checkpoints=tmp_path, ray_temp=tmp_path)
    made = hydra_overrides(MultiTurnRLConfig(compute_dtype="bfloat16"), paths)
    actor = [o for o in made if "actor.fsdp_config" in o]
    assert "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16" in actor
    assert not any("model_dtype" in o for o in made)  # verl's is fp32
    from verl.workers.config import FSDPEngineConfig

    assert FSDPEngineConfig().model_dtype == "fp32"


def test_one_step_off_policy_answers_a_step_of_prompts_beforehand(tmp_path):
    paths = RunPaths(dataset=tmp_path, checkpoints=tmp_path, ray_temp=tmp_path)

    def mode(**how):
        made = hydra_overrides(MultiTurnRLConfig(compute_dtype="float32", **how), paths)
        return [o for o in made if o.startswith("trainer.v1.") or "free_cache_engine" in o]

    assert not mode()
    assert mode(one_step_off_policy=True) == [
        "actor_rollout_ref.rollout.free_cache_engine=False",  # it answers while the policy learns
        "trainer.v1.trainer_mode=colocate_async",
        "trainer.v1.colocate_async.num_warmup_batches=1",
    ]
    with pytest.raises(ValidationError, match="learns from another policy's answers"):
        MultiTurnRLConfig(one_step_off_policy=True, importance_cap=0.0)


def test_importance_weights_are_left_out_where_probabilities_are_the_rollouts_own(tmp_path):
    paths = RunPaths(dataset=tmp_path, checkpoints=tmp_path, ray_temp=tmp_path)

    def overrides(**how):
        config = MultiTurnRLConfig(compute_dtype="float32", **how)
        return " ".join(hydra_overrides(config, paths))

    assert "rollout_correction.rollout_is=token" in overrides()
    assert "rollout_is_threshold=3.0" in overrides(importance_cap=3.0)
    assert "rollout_is=" not in overrides(importance_cap=0.0)
    assert "rollout_is=" not in overrides(reuse_rollout_logprobs=True)
    assert "turn_groups.least_groups=1" in overrides(algorithm="ppo", least_groups=5)
