"""What a configuration of RL would start, and verl's own opinion of it, without Ray, a model or a
GPU."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from coding_framework.errors import UsageError
from coding_framework.store.folder import RLFolder, is_model
from coding_framework.training.placement import cluster_commands, placement
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
