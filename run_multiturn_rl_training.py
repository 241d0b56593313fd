#!/usr/bin/env python3
"""Multi-turn RL by verl's own trainer, with verdicts as rewards: one policy in all roles, or an
adapter a role (--policy per_role), trained in alternation.

    python run_multiturn_rl_training.py --generator-checkpoint sft_checkpoints/generator

Writes OUTPUT_DIR/final_model, OUTPUT_DIR/best_model_episode_X, OUTPUT_DIR/result.json and, under
OUTPUT_DIR/attempts, every conversation of the training; with per_role, final_model has an adapter
for each role, and OUTPUT_DIR/roles/ROLE the role's attempts. The same command goes on after a kill.
Without a GPU the defaults are those for a model of about 135M parameters on 2 cores. --config takes
a recipe of configs/; a flag wins over it. --dry-run says what would run where, and starts nothing.
"""

from __future__ import annotations

import coding_framework.commands.interrupts  # noqa: F401  (Ctrl-C while the rest is imported)

# isort: split
import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.commands.failures import run_script
from coding_framework.commands.flags import add_flags, add_switch, script_parser
from coding_framework.errors import UsageError
from coding_framework.monitoring.imports import without_collecting
from coding_framework.monitoring.logs import configure_logging, quiet_libraries
from coding_framework.run.recipe import Recipe
from coding_framework.store.folder import (
    RLFolder,
    SFTFolder,
    base_of_adapter,
    is_adapter,
    is_model,
    replaced,
)
from coding_framework.store.model_card import card_of, write_card
from coding_framework.training.recipes import RecipeFile, read_recipe, rl_config
from coding_framework.training.reward_functions.presets import PRESETS
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import Role, TaskPool
from coding_framework.wiring import JudgeSettings

if TYPE_CHECKING:
    from coding_framework.training.rl_result import RLResult

FLAGS = (
    "output_dir", "num_episodes", "max_turns", "prompts", "policy", "phase_steps",
    "prompts_per_step", "samples_per_prompt", "learning_rate", "warmup_steps", "weight_decay",
    "algorithm", "clip_ratio_low", "clip_ratio_high", "kl_coefficient", "sampling_rounds",
    "overlong_buffer_tokens", "gae_lambda", "gae_gamma", "critic_learning_rate", "discount",
    "curriculum", "reward_preset", "reward", "tester", "stop_reward", "temperature",
    "max_prompt_tokens", "max_response_tokens", "lora_rank", "num_gpus", "rollout_gpus",
    "judge_gpus", "gpu_memory_utilization", "save_every", "seed", "overrides", "wandb",
    "leave_one_out", "least_spread", "least_groups", "updates_per_step", "importance_cap",
    "validate_every", "validation_tasks", "validation_patience", "task_evidence", "redraws",
    "minutes", "one_step_off_policy", "kl_in_advantage",
)  # fmt: skip
"""Fields of `MultiTurnRLConfig` that are flags."""
FIRST = (
    "config", "generator_checkpoint", "output_dir", "num_episodes", "max_turns",
    "prompts_per_step", "samples_per_prompt", "learning_rate", "dry_run",
)  # fmt: skip
"""What `--help` shows."""
SFT = SFTFolder(Path("sft_checkpoints"))
"""Where run_sft_training.py leaves its adapters by default."""
NO_CHECKPOINT = (
    f"--generator-checkpoint is missing, and there is no {SFT.adapter(Role.GENERATOR)}: make one "
    "with run_sft_training.py"
)
POOL = {
    "rl_tasks": ("--num-tasks",),
    "rl_skip_tasks": ("--skip-tasks",),
    "task_max_ops": ("--max-task-ops",),
    "task_max_tier": ("--max-task-tier",),
    "task_scope": ("--task-scope",),
    "task_pool": ("--pool",),
}
"""Fields of `Recipe` that say which tasks RL draws from, with their flags."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; a flag that is not given keeps the recipe's value. Raises UsageError."""
    cli = script_parser(__doc__)
    cli.first = FIRST
    add_switch(cli, "--dry-run", "print what would run where, and start nothing")
    cli.add_argument(
        "--generator-checkpoint",
        metavar="DIR",
        help="model to start from: an adapter of run_sft_training.py, or a whole model (default: "
        "sft_checkpoints/generator)",
    )
    cli.add_argument(
        "--optimizer-checkpoint",
        metavar="DIR",
        help="model of the optimizer, where it is another one: --policy per_role starts from both "
        "(default: sft_checkpoints/optimizer)",
    )
    add_flags(
        cli,
        MultiTurnRLConfig,
        FLAGS,
        spelled={"prompts_per_step": ("--rl-batch-size", "--prompts-per-step")},
        choices={"reward_preset": list(PRESETS)},
        cpu=MultiTurnRLConfig.cpu(model_path=""),
    )
    add_flags(cli, Recipe, POOL, spelled=POOL)
    add_flags(cli, RecipeFile, ["device"])
    add_flags(cli, JudgeSettings, ["sandbox", "backend"], spelled={"backend": ("--judge-backend",)})
    given: argparse.Namespace = cli.parse_args(arguments)
    return given


def start_models(given: dict[str, object], recipe: RecipeFile, output: Path) -> dict[str, Any]:
    """The whole models that RL starts from, as settings; adapters are merged once. Raises
    UsageError."""
    generator = given.pop("generator_checkpoint", None)
    optimizer = given.pop("optimizer_checkpoint", None)
    if generator is None:
        generator, made = SFT.adapter(Role.GENERATOR), SFT.adapter(Role.OPTIMIZER)
        if not generator.exists():
            raise UsageError(NO_CHECKPOINT)
        optimizer = made if optimizer is None and made.exists() else optimizer
    one = checkpoint_at(str(generator))
    other = one if optimizer is None else checkpoint_at(str(optimizer))
    run = RLFolder(output)
    if other == one or same_weights(one, other):
        return {"model_path": str(whole_model(one, run.start_model))}
    if given.get("policy", recipe.rl.get("policy")) != "per_role":
        raise UsageError(
            f"{one} and {other} differ, and one policy for both roles starts from one model: give "
            "it as --generator-checkpoint alone, or choose --policy per_role"
        )
    return {
        "model_path": str(whole_model(one, run.start_model)),
        "role_models": {
            "optimizer": str(whole_model(other, run.start_model_of(Role.OPTIMIZER))),
        },
    }


def checkpoint_at(folder: str) -> Path:
    """A folder that RL can start from. Raises UsageError."""
    path = Path(folder)
    if not path.exists():
        raise UsageError(f"there is no {path}: make one with run_sft_training.py")
    if not is_model(path) and not is_adapter(path):
        raise UsageError(
            f"{path} is neither a model nor an adapter: make one with run_sft_training.py"
        )
    return path


def whole_model(checkpoint: Path, merged: Path) -> Path:
    """The checkpoint, where it is a whole model; else `merged`, made of the adapter once."""
    if is_model(checkpoint):
        return checkpoint
    if not is_model(merged):
        merge(checkpoint, merged)
    return merged


def same_weights(one: Path, other: Path) -> bool:
    """Whether two folders hold the same weights."""
    names = ("adapter_model.safetensors", "model.safetensors")
    pairs = [(one / n, other / n) for n in names if (one / n).exists()]
    return bool(pairs) and all(b.exists() and a.read_bytes() == b.read_bytes() for a, b in pairs)


def merge(adapter: Path, target: Path) -> None:
    """Write the adapter's base model with the adapter merged, in float32 as RL trains it: bfloat16
    would round small updates away."""
    from coding_framework.agents.models import resolve_model
    from coding_framework.agents.policies import load_model

    base = resolve_model(base_of_adapter(adapter))
    model, tokenizer = load_model(base, adapter=adapter, dtype="float32")
    card = card_of(adapter)
    with replaced(target) as fresh:
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        if card is not None:
            write_card(fresh, card.merged())


def make_config(
    given: dict[str, Any], recipe: RecipeFile, models: dict[str, Any]
) -> MultiTurnRLConfig:
    """The recipe with the given flags. Raises UsageError."""
    judge = {name: given.pop(name) for name in ("sandbox", "backend") if name in given}
    if "overrides" in given:
        given["overrides"] = [*recipe.rl.get("overrides", ()), *given["overrides"]]
    return rl_config(recipe, {**given, **models, "judge_args": judge})


def try_out(given: dict[str, Any], recipe: RecipeFile) -> None:
    """The dry run of a command line. Raises UsageError, for named checkpoints that are missing
    too."""
    named = [given.pop(f"{role}_checkpoint", None) for role in ("generator", "optimizer")]
    made = named[0] is not None or SFT.adapter(Role.GENERATOR).exists()
    model = named[0] or recipe.base_model or "the SFT model"
    from coding_framework.training.verl.dry_run import dry_run

    config = make_config(given, recipe, {"model_path": str(model)})
    for checkpoint in filter(None, named):
        checkpoint_at(str(checkpoint))
    if not made:
        print(f"{NO_CHECKPOINT}, before the run itself", file=sys.stderr)
    dry_run(config)


def make_pool(given: dict[str, object], recipe: RecipeFile) -> dict[str, Any]:
    """Which tasks, by the flags, then the recipe's `run` section, then the defaults."""
    default = Recipe.model_fields
    return {name: given.pop(name, recipe.run.get(name, default[name].default)) for name in POOL}


def run(
    config: MultiTurnRLConfig,
    rl_tasks: int,
    rl_skip_tasks: int,
    task_max_ops: int | None,
    task_max_tier: int | None,
    task_scope: Any,
    task_pool: TaskPool,
) -> RLResult:
    """Tasks, training, result."""
    from coding_framework.training.verl_integration import MultiAgentVERLTrainer

    prompts = config.num_episodes * config.prompts_per_step
    count = rl_tasks if config.curriculum else min(prompts, rl_tasks)
    more = config.validation_tasks if config.validate_every else 0
    if task_pool == "modules":
        from coding_framework.data.modules.pool import training_modules, validation_modules

        tasks = training_modules(count, skip=rl_skip_tasks)
        validation = validation_modules(more) if more else []
    else:
        from coding_framework.data.data_pipeline import CUDADataPipeline, DataPipelineConfig

        pipeline = CUDADataPipeline(
            DataPipelineConfig(
                max_steps=task_max_ops, max_tier=task_max_tier, scope=task_scope, seed=config.seed
            )
        )
        last = rl_skip_tasks + count
        first = pipeline.draw_tasks(last + more)
        tasks, validation = first[rl_skip_tasks:last], first[last:]
    trainer = MultiAgentVERLTrainer(config, tasks=tasks, validation_tasks=validation)
    return asyncio.run(trainer.train())


def main(arguments: list[str] | None = None) -> int:
    return run_script(lambda: train(arguments))


def train(arguments: list[str] | None) -> int:
    given = vars(parse(arguments))
    recipe = read_recipe(given.pop("config"))
    pool = make_pool(given, recipe)
    if given.pop("dry_run"):
        with without_collecting():
            try_out(given, recipe)
        return 0
    output = Path(str(given.get("output_dir") or recipe.rl.get("output_dir", "rl_checkpoints")))
    quiet_libraries()
    models = start_models(given, recipe, output)
    config = make_config(given, recipe, models)
    configure_logging(RLFolder(output).log)
    print(config.model_dump_json(indent=2), file=sys.stderr)
    result = run(config, **pool)
    print(result.model_dump_json(indent=2))
    if (said := result.told(config.last_step)) is not None:
        print(f"RL: {said}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
