"""The run's configuration as verl's Hydra overrides. Pure; imports neither verl nor Ray.

Reasons for what is not obvious stand beside it; the rest is verl's default on purpose.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coding_framework.errors import UsageError
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import Record

AGENT_LOOP = "kernel_turns"
OWN = "algorithm.turn_groups"
"""Section of verl's configuration that our estimator, sampling and update read."""
ESTIMATOR = "turn_grpo"
CPU_ROLLOUT = "cpu_batched"
PLUGIN = "coding_framework.training.verl.patches"
PACKED_ATTENTION = "coding_framework_packed"
"""transformers' name of `worker.attend`."""
MANAGER = "coding_framework.training.verl.agent_loop.TurnRowsManager"
ROWS_METRIC = "training/rows_updated"
"""Rows with an advantage in a step's update, among verl's metrics."""
GROUPS_METRIC = "training/groups_updated"
"""Groups with an advantage in a step."""
CHECKPOINT_CALLBACK = "coding_framework.training.verl.trainer.FinishCheckpoint"
CURRICULUM = "pkg://coding_framework.training.verl.curriculum"
_SHORT = {"bfloat16": "bf16", "float32": "fp32"}
GRAPHS: dict[str, Any] = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
"""vLLM's decoding as CUDA graphs, which saves it most launches, without torch.compile, which takes
minutes at every start of a run."""
RAY_CPU_SLOTS = 5
"""Logical slots, not cores, beside those of rollout workers and GPUs: verl's actors ask for 3 of
them, and with fewer they wait for each other silently for ever. Ray starts a worker process a slot
beforehand, so not many more."""
GPU_CPU_SLOTS = 4
"""Those of a GPU, on the CPU of a training process: verl asks for 3, for the roles there."""
STORE_VARIABLE = "RAY_OBJECT_STORE_MEMORY"
LEAST_STORE = 80 * 2**20
"""Bytes; Ray refuses less."""
OWN_RAY = "+ray_kwargs.ray_init.address=local"
"""Among the overrides where Ray is an instance of the run's own."""
MOST_AT_ONCE = 48
"""Conversations in a batch of our own decode loop, on a CPU."""
MOST_AT_ONCE_ON_GPU = 128
"""There a step of the loop takes about as long for more, and 128 contexts of 4,096 tokens 15 GB."""

CLUSTER_VARIABLES = (
    "CODING_FRAMEWORK_RL_RUN",
    "CODING_FRAMEWORK_EPISODE_SPEC",
    "VERL_USE_EXTERNAL_MODULES",
    "VERL_PLATFORM",
    "VERL_FILE_LOGGER_PATH",
    "VLLM_USE_FLASHINFER_SAMPLER",
    "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED",
    "HF_HUB_OFFLINE",
    "TOKENIZERS_PARALLELISM",
    "MALLOC_ARENA_MAX",
    "CUDA_RL_CACHE",
    "PYTHONPATH",
)
"""What every process of a run must have in its environment."""


class RunPaths(Record):
    """Where the parts of one attempt are."""

    dataset: Path
    validation: Path | None = None
    """Prompts of a validation; None: there is none."""
    checkpoints: Path
    ray_temp: Path
    resume_from: Path | None = None


def hydra_overrides(config: MultiTurnRLConfig, paths: RunPaths) -> list[str]:
    """All overrides, in an order that lets the user's win. `compute_dtype` must be resolved."""
    pairs: dict[str, Any] = {
        **_data(config, paths),
        **_actor(config),
        **_rollout(config),
        **_algorithm(config),
        **_trainer(config, paths),
        **(_rollout_apart(config) if config.rollout_gpus else {}),
        **_ray(config, paths),
    }
    return [f"{key}={_hydra(value)}" for key, value in pairs.items()] + list(config.overrides)


def files_below(folder: Path) -> list[str]:
    """Where Hydra keeps its log, which it otherwise puts below the folder where one stands."""
    return [f"hydra.run.dir={_hydra(str(folder))}", "hydra.output_subdir=null"]


def _data(config: MultiTurnRLConfig, paths: RunPaths) -> dict[str, Any]:
    pairs: dict[str, Any] = {
        "data.train_files": str(paths.dataset),
        "data.val_files": str(paths.validation or paths.dataset),
        "data.train_batch_size": config.prompts_per_step,
        "data.max_prompt_length": config.max_prompt_tokens,
        "data.max_response_length": config.max_response_tokens,
        "data.filter_overlong_prompts": False,  # the dataset's prompt is a label, see feed.py
        "data.shuffle": False,  # the dataset is in the order that we want, so a rerun repeats it
        "data.dataloader_num_workers": 0,
        "data.return_raw_chat": True,
    }
    if config.curriculum is not None:
        pairs |= {"data.custom_cls.path": CURRICULUM, "data.custom_cls.name": "CurriculumDataset"}
    return pairs


def _actor(config: MultiTurnRLConfig) -> dict[str, Any]:
    root = "actor_rollout_ref"
    # verl counts prompts here and multiplies by samples; our rows are turns. One update a step.
    mini_batch = config.prompts_per_step * config.max_turns
    pairs = {
        f"{root}.model.path": config.model_path,
        # A micro-batch is one packed row: no time and no memory goes to padding. With sdpa
        # transformers masks the rows from each other, by their position ids.
        f"{root}.model.use_remove_padding": True,
        f"+{root}.model.override_config.attn_implementation": (
            PACKED_ATTENTION if config.packed_attention else "sdpa"
        ),
        f"{root}.model.enable_gradient_checkpointing": config.gradient_checkpointing,
        f"{root}.actor.strategy": "fsdp2",
        f"{root}.actor.ppo_mini_batch_size": mini_batch,
        # Micro-batches by tokens; only then verl allows a mini-batch of more rows than prompts.
        f"{root}.actor.use_dynamic_bsz": True,
        f"{root}.actor.ppo_max_token_len_per_gpu": config.tokens_per_micro_batch,
        f"{root}.actor.optim.lr": config.learning_rate,
        f"{root}.actor.optim.lr_scheduler_type": "constant",
        f"{root}.actor.optim.lr_warmup_steps": config.warmup_steps,
        f"{root}.actor.optim.weight_decay": config.weight_decay,
        f"{root}.actor.clip_ratio_low": config.clip_ratio_low,
        f"{root}.actor.clip_ratio_high": config.clip_high,
        f"{root}.actor.loss_agg_mode": "token-mean",
        f"{root}.actor.use_kl_loss": config.kl_in_loss,
        f"{root}.actor.kl_loss_coef": config.kl_coefficient,
        f"{root}.actor.data_loader_seed": config.seed,
        **_engine(f"{root}.actor.fsdp_config", config),
    }
    if config.kl_coefficient > 0:
        pairs |= _engine(f"{root}.ref.fsdp_config", config)  # or it would compute otherwise
    if config.lora_rank:
        pairs |= {
            f"{root}.model.lora_rank": config.lora_rank,
            f"{root}.model.lora_alpha": config.lora_alpha,
            f"{root}.model.lora.merge": True,  # the rollout gets plain merged weights
            f"+{root}.actor.checkpoint.save_lora_only": True,  # megabytes a step, not gigabytes
        }
    if config.device == "cpu":
        pairs[f"{root}.actor.use_torch_compile"] = False
    return pairs


def _rollout(config: MultiTurnRLConfig) -> dict[str, Any]:
    root = "actor_rollout_ref.rollout"
    pairs: dict[str, Any] = {
        f"{root}.name": CPU_ROLLOUT if config.device == "cpu" else "vllm",
        f"{root}.dtype": config.compute_dtype,
        f"{root}.n": config.samples_per_prompt,
        f"{root}.temperature": config.temperature,
        f"{root}.tensor_model_parallel_size": 1,
        f"{root}.calculate_log_probs": True,
        f"{root}.seed": config.seed,
        f"{root}.agent.num_workers": config.rollout_workers,
        f"{root}.agent.default_agent_loop": AGENT_LOOP,
        f"+{root}.agent.agent_loop_manager_class": MANAGER,
    }
    if config.device == "cpu":
        pairs[f"{root}.max_num_seqs"] = min(MOST_AT_ONCE, config.conversations_per_step)
    else:
        pairs |= {
            f"{root}.gpu_memory_utilization": config.gpu_memory_utilization,
            f"{root}.max_model_len": config.max_prompt_tokens + config.max_response_tokens,
        }
        pairs[f"+{root}.engine_kwargs.vllm.compilation_config"] = json.dumps(GRAPHS)
    return pairs


def _rollout_apart(config: MultiTurnRLConfig) -> dict[str, Any]:
    """Rollout on GPUs of its own. verl would begin steps early, with older weights: no warm-up
    batch and new weights after each step keep the samples those of the policy before it."""
    root, trainer = "actor_rollout_ref", "trainer.v1"
    return {
        f"{trainer}.trainer_mode": "separate_async",
        f"{trainer}.separate_async.num_warmup_batches": 0,
        f"{trainer}.separate_async.parameter_sync_step": 1,
        f"{root}.hybrid_engine": False,
        f"{root}.rollout.nnodes": 1,
        f"{root}.rollout.n_gpus_per_node": config.rollout_gpus,
        f"{root}.rollout.checkpoint_engine.backend": "nccl",
        # What this trainer asks for. Of no effect but with a KL term (trainer.py).
        f"{root}.actor.ppo_mini_batch_size": config.prompts_per_step,
    }


def _algorithm(config: MultiTurnRLConfig) -> dict[str, Any]:
    pairs: dict[str, Any] = {
        "algorithm.adv_estimator": ESTIMATOR,
        "algorithm.norm_adv_by_std_in_grpo": config.scale_advantages,
        f"+{OWN}.leave_one_out": config.leave_one_out,
        f"+{OWN}.least_spread": config.least_spread,
        f"+{OWN}.least_groups": config.groups_needed,
        f"+{OWN}.updates_per_step": config.updates_per_step,
        f"+{OWN}.kl_in_advantage": config.kl_coefficient if config.kl_in_advantage else 0.0,
        "algorithm.rollout_correction.bypass_mode": config.reuse_rollout_logprobs,
        "critic.enable": config.algorithm == "ppo",
        "reward.num_workers": 0,  # rows carry their reward
    }
    if config.kl_in_advantage:  # verl computes the reference's log-probs; the trainer uses them
        pairs |= {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": 0.0}
    if config.importance_cap and not config.reuse_rollout_logprobs:
        pairs |= {
            "algorithm.rollout_correction.rollout_is": "token",
            "algorithm.rollout_correction.rollout_is_threshold": config.importance_cap,
        }
    if config.algorithm == "dapo":
        pairs |= {  # which groups are dropped: trainer.TurnsBuffer
            "algorithm.filter_groups.enable": True,
            "algorithm.filter_groups.metric": "reward",
            "+trainer.v1.sampler.sampler_kwargs.rounds": config.sampling_rounds,
            "+trainer.v1.sampler.sampler_kwargs.least_spread": config.least_spread,
        }
    if config.algorithm == "ppo":
        pairs |= {
            "algorithm.adv_estimator": "gae",
            "algorithm.gamma": config.gae_gamma,
            "algorithm.lam": config.gae_lambda,
            **_critic(config),
        }
    return pairs


def _critic(config: MultiTurnRLConfig) -> dict[str, Any]:
    """A critic that starts from the policy's weights; sizes and batches are the actor's."""
    return {
        "critic.strategy": "fsdp2",
        "critic.model.path": config.model_path,
        "critic.model.use_remove_padding": True,
        "+critic.model.override_config.attn_implementation": "sdpa",
        "critic.model.enable_gradient_checkpointing": config.gradient_checkpointing,
        "critic.optim.lr": config.critic_learning_rate,
        "critic.ppo_max_token_len_per_gpu": config.tokens_per_micro_batch,
        # The one that counts, in the update too: verl's trainer reads no other (and has 32768).
        "+critic.ppo_infer_max_token_len_per_gpu": config.tokens_per_micro_batch,
        "critic.data_loader_seed": config.seed,
        **_engine("critic.fsdp", config),
    }


def _engine(root: str, config: MultiTurnRLConfig) -> dict[str, Any]:
    """FSDP: weights and sums in float32, products in the compute dtype."""
    pairs: dict[str, Any] = {
        f"{root}.seed": config.seed,
        f"+{root}.mixed_precision.param_dtype": _SHORT[config.compute_dtype],
        f"+{root}.mixed_precision.reduce_dtype": "fp32",
        f"+{root}.mixed_precision.buffer_dtype": "fp32",
        f"{root}.use_torch_compile": False,  # of the entropy alone; costs more than a short run
    }
    if config.device == "cpu":
        # Nothing to save by freeing gathered weights in the middle of a step.
        pairs[f"{root}.reshard_after_forward"] = False
    else:  # float32 copies of all logits at once would be most of the memory
        pairs[f"{root}.entropy_from_logits_with_chunking"] = True
    return pairs


def _trainer(config: MultiTurnRLConfig, paths: RunPaths) -> dict[str, Any]:
    resume: dict[str, Any] = {"trainer.resume_mode": "disable"}
    if paths.resume_from is not None:
        resume = {
            "trainer.resume_mode": "resume_path",
            "trainer.resume_from_path": str(paths.resume_from),
        }
    ahead: dict[str, Any] = {}
    if config.one_step_off_policy:  # the prompts of one step are answered beforehand
        ahead = {
            "actor_rollout_ref.rollout.free_cache_engine": False,
            "trainer.v1.trainer_mode": "colocate_async",
            "trainer.v1.colocate_async.num_warmup_batches": 1,
        }
    return {
        **ahead,
        "trainer.device": config.device,
        "trainer.n_gpus_per_node": config.num_gpus,
        "trainer.nnodes": config.num_nodes,
        "trainer.total_epochs": 1,  # the dataset holds the whole run
        "trainer.total_training_steps": config.last_step,
        "trainer.save_freq": config.save_every,
        "trainer.max_actor_ckpt_to_keep": 2,  # the one before lives until the next is whole
        "trainer.max_critic_ckpt_to_keep": 2,
        "trainer.checkpoint_callback_class": CHECKPOINT_CALLBACK,
        "trainer.default_local_dir": str(paths.checkpoints),
        # Of the start model too, once: a run may well make it worse.
        "trainer.val_before_train": bool(config.validate_every) and paths.resume_from is None,
        "trainer.test_freq": config.validate_every or -1,
        "trainer.logger": ["console", "file"],
        "trainer.project_name": "CUDA-MultiTurn-RL",
        "trainer.experiment_name": paths.checkpoints.parent.name,
        **resume,
    }


def _ray(config: MultiTurnRLConfig, paths: RunPaths) -> dict[str, Any]:
    init, storage = "ray_kwargs.ray_init", "transfer_queue.backend.SimpleStorage"
    # Processes that hold the rows between verl's parts. By itself it starts eight.
    queue = {f"{storage}.num_data_storage_units": config.num_nodes}
    if config.ray_address is not None:
        # verl's queue would go to every node, and wait for ever on those that offer no processors.
        return queue | {
            f"+{init}.address": config.ray_address,
            f"++{storage}.required_node_resource": "CPU",
        }
    options = ray_options(config, paths)
    cpus = options.pop("num_cpus")
    return queue | {f"{init}.num_cpus": cpus} | {f"+{init}.{k}": v for k, v in options.items()}


def cluster_overrides(config: MultiTurnRLConfig, environment: Mapping[str, str]) -> list[str]:
    """The run's variables for the workers of a cluster that is joined: its nodes were started with
    another environment. None for an instance of our own, whose processes inherit them."""
    if config.ray_address is None:
        return []
    root = "+ray_kwargs.ray_init.runtime_env.env_vars"
    return [
        f"{root}.{name}={json.dumps(environment[name])}"  # quoted: 1 and false stay text
        for name in CLUSTER_VARIABLES
        if name in environment
    ]


def store_bytes(config: MultiTurnRLConfig, environment: Mapping[str, str]) -> int:
    """Size of Ray's object store: RAY_OBJECT_STORE_MEMORY, where it is set, else the setting.
    Raises UsageError where that is no number."""
    said = environment.get(STORE_VARIABLE)
    if not said:
        return config.object_store_mib * 2**20
    if not said.isdigit() or int(said) < LEAST_STORE:
        raise UsageError(
            f"{STORE_VARIABLE}={said}: set it to a number of bytes of at least {LEAST_STORE}"
        )
    return int(said)


def ray_options(config: MultiTurnRLConfig, paths: RunPaths) -> dict[str, Any]:
    """Arguments of `ray.init` for an instance of our own."""
    needed = RAY_CPU_SLOTS + config.rollout_workers + GPU_CPU_SLOTS * config.gpus_used
    options: dict[str, Any] = {
        "address": "local",  # without it Ray would join one that runs on the machine
        "_temp_dir": str(paths.ray_temp),
        "include_dashboard": False,
        "object_store_memory": store_bytes(config, os.environ),
        "num_cpus": max(os.cpu_count() or 1, needed, 16),
    }
    if config.object_spilling_dir is not None:
        options["object_spilling_directory"] = config.object_spilling_dir
    if config.device == "cpu":
        options["num_cpus"] = needed
    if config.device == "cpu" or config.judge_gpus:
        # On the CPU logical, a training process each; on GPUs the first ones, others judge.
        options["num_gpus"] = config.gpus_used
    return options


def _hydra(value: Any) -> str:
    """A value in Hydra's override grammar."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(_hydra(v) for v in value) + "]"
    if isinstance(value, str):
        plain = value and all(c.isalnum() or c in "_-./" for c in value)
        return value if plain else json.dumps(value)
    return repr(value)
