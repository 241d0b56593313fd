"""What a configuration of RL would start, and verl's own opinion of it, without Ray, a model or a
GPU."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from coding_framework.errors import UsageError
from coding_framework.store.folder import RLFolder, is_model
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.overrides import RunPaths, hydra_overrides


def dry_run(config: MultiTurnRLConfig) -> None:
    """Print what would run and where; verl checks its own configuration. Raises UsageError."""
    print(config.model_dump_json(indent=2))
    for part, place in placement(config):
        print(f"{part:<16} {place}")
    for line in cluster_commands(config):
        print(line)
    validated(config)
    print("verl accepts this configuration; nothing was started")


def validated(config: MultiTurnRLConfig) -> Any:
    """verl's whole configuration for this run, as its trainer would get it.

    Checked are every name and the sizes that verl checks before it starts; a critic's model only
    where the model's folder is there. A `compute_dtype` of auto stands for bfloat16: finding out
    what this machine computes in takes seconds, and verl accepts both.

    Raises:
        UsageError: naming what verl refuses.
    """
    import hydra
    import verl
    from verl.utils.config import validate_config

    if config.compute_dtype == "auto":
        config = config.model_copy(update={"compute_dtype": "bfloat16"})
    run = RLFolder(Path(config.output_dir).resolve())
    paths = RunPaths(dataset=run.prompts, checkpoints=run.checkpoints, ray_temp=Path("/tmp"))
    folder = Path(verl.__file__).parent / "trainer" / "config"
    model_is_there = is_model(config.model_path)
    try:
        with hydra.initialize_config_dir(str(folder), version_base=None):
            composed = hydra.compose("ppo_trainer", overrides=hydra_overrides(config, paths))
        with contextlib.redirect_stdout(io.StringIO()):
            validate_config(
                composed,
                use_reference_policy=config.kl_coefficient > 0,
                use_critic=composed.critic.enable and model_is_there,
            )
    except Exception as e:  # hydra, omegaconf, asserts and ValueErrors of verl
        said = " ".join(str(e).split()) or type(e).__name__
        raise UsageError(f"verl refuses this configuration: {said[:300]}") from e
    return composed


def placement(config: MultiTurnRLConfig) -> list[tuple[str, str]]:
    """(part, place) in the order of a step."""
    ranks = config.num_gpus * config.num_nodes
    one, more = ("process", "processes") if config.device == "cpu" else ("GPU", "GPUs")
    where = f"{ranks} {more if ranks > 1 else one}"
    if config.device == "cpu":
        where += " on the CPU"
    if config.num_nodes > 1:
        where += f" on {config.num_nodes} nodes, {config.num_gpus} each"
    colocated = f"the same {where}"
    memory = f", {config.gpu_memory_utilization:.0%} of the memory of each"
    share = "" if config.device == "cpu" else memory
    return [
        ("policy training", f"{where}, sharded over all by FSDP2"),
        ("rollout", _rollout(config) or f"{colocated}, a server each{share}"),
        ("roles", _roles(config)),
        ("reference", colocated if config.kl_coefficient > 0 else "none (kl_coefficient is 0)"),
        ("critic", colocated if config.algorithm == "ppo" else "none (not ppo)"),
        ("conversations", f"{config.rollout_workers} rollout workers, on CPU cores of any node"),
        ("verdicts", _verdicts(config)),
        ("Ray", _ray(config)),
        ("step", _step(config)),
    ]


def _rollout(config: MultiTurnRLConfig) -> str:
    """Where GPUs do nothing else; empty where those that train write too."""
    if not config.rollout_gpus:
        return ""
    return f"{_more(config.rollout_gpus)}, a server each; they get the weights after each step"


def _more(gpus: int) -> str:
    if gpus == 1:
        return "1 more GPU of the machine, which does nothing else"
    return f"{gpus} more GPUs of the machine, which do nothing else"


def _roles(config: MultiTurnRLConfig) -> str:
    if config.policy == "shared":
        return "one policy speaks and learns in both"
    place = "the CPU" if config.device == "cpu" else "the first GPU"
    return (
        f"an adapter each, in turn for {config.phase_steps} steps of {config.num_episodes}; the "
        f"other is frozen and served by transformers on {place}"
    )


def _verdicts(config: MultiTurnRLConfig) -> str:
    if config.judge_gpus:
        return (
            f"{_more(config.judge_gpus)}; what comes before them on the cores that feed no GPU, "
            "one judge for all rollout workers"
        )
    if config.judge_nodes == 0:
        return "one judge on each machine for its rollout workers, on the cores that feed no GPU"
    return (
        f"{config.judge_nodes} nodes of the cluster that have the resource judge, "
        f"{config.judge_jobs_per_node} at once on each, shared by the rollout workers"
    )


def _ray(config: MultiTurnRLConfig) -> str:
    if config.ray_address is not None:
        return f"joins the cluster at {config.ray_address}"
    spill = config.object_spilling_dir or "its temporary folder"
    return f"an instance of its own, object store {config.object_store_mib} MiB, spills to {spill}"


def _step(config: MultiTurnRLConfig) -> str:
    rounds = f", up to {config.sampling_rounds} times" if config.algorithm == "dapo" else ""
    updates = "one update"
    if config.rollout_gpus and config.kl_in_loss:
        updates = f"up to {config.max_turns} updates"  # verl splits the rows by prompts
    return (
        f"{config.prompts_per_step} prompts x {config.samples_per_prompt} samples{rounds}, "
        f"up to {config.max_turns} turns: {config.rows_per_step} rows at most, {updates}"
    )


def cluster_commands(config: MultiTurnRLConfig) -> list[str]:
    """What starts the cluster that the configuration joins; none for an instance of our own."""
    if config.ray_address is None:
        return []
    store = f"--object-store-memory={config.object_store_mib * 2**20}"
    if config.object_spilling_dir is not None:
        store += f" --object-spilling-directory={config.object_spilling_dir}"
    lines = [f"first node:        ray start --head --num-gpus={config.num_gpus} {store}"]
    if config.num_nodes > 1:
        lines.append(
            f"{config.num_nodes - 1} more that train: ray start --address=FIRST:6379 "
            f"--num-gpus={config.num_gpus} {store}"
        )
    if config.judge_nodes:
        lines.append(
            f"{config.judge_nodes} that judge:      ray start --address=FIRST:6379 --num-cpus=0 "
            f"--num-gpus=0 --resources='{{\"judge\": {config.judge_jobs_per_node}}}' {store}"
        )
    return lines
