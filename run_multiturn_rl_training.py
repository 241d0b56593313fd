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

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.monitoring.logs import configure_logging, quiet_libraries
from coding_framework.store.folder import RLFolder, base_of_adapter, is_adapter, is_model, replaced
from coding_framework.store.model_card import card_of, write_card
from coding_framework.training.recipes import RecipeFile, read_recipe, rl_config
from coding_framework.training.reward_functions.presets import PRESETS
from coding_framework.training.verl_integration import (
    MultiAgentVERLTrainer,
    MultiTurnRLConfig,
    RLResult,
    with_dtype,
)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; a flag that is not given keeps the recipe's value."""
    cli = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    cli.add_argument("--config", default=None, help="a recipe, e.g. configs/one_gpu.yaml")
    cli.add_argument("--dry-run", action="store_true", default=False)
    cli.add_argument("--generator-checkpoint", help="SFT adapter, or a whole model")
    cli.add_argument("--optimizer-checkpoint", help="the same: RL starts both from one")
    cli.add_argument("--output-dir")
    cli.add_argument("--num-episodes", type=int, help="training steps")
    cli.add_argument("--max-turns", type=int)
    cli.add_argument(
        "--prompts", choices=["v1", "v2"], help="v2: with the form of an answer, for no SFT"
    )
    cli.add_argument("--policy", choices=["shared", "per_role"])
    cli.add_argument("--phase-steps", type=int, help="per_role: steps until the roles swap")
    cli.add_argument("--rl-batch-size", dest="prompts_per_step", type=int, help="prompts a step")
    cli.add_argument("--samples-per-prompt", type=int)
    cli.add_argument("--learning-rate", type=float)
    cli.add_argument("--warmup-steps", type=int, help="updates until the whole rate; 0")
    cli.add_argument("--weight-decay", type=float, help="0.01")
    cli.add_argument("--algorithm", choices=["grpo", "dapo", "ppo"])
    cli.add_argument("--clip-ratio-low", type=float)
    cli.add_argument("--clip-ratio-high", type=float, help="default: 0.28 with dapo, else 0.2")
    cli.add_argument("--kl-coefficient", type=float, help="of the KL to the start; 0.02 to 0.08")
    cli.add_argument("--sampling-rounds", type=int, help="dapo: most groups drawn, in batches")
    cli.add_argument("--overlong-buffer-tokens", type=int, help="answers this close to the limit")
    cli.add_argument("--gae-lambda", type=float, help="ppo: 0.95")
    cli.add_argument("--gae-gamma", type=float, help="ppo: 1.0")
    cli.add_argument("--critic-learning-rate", type=float)
    cli.add_argument("--discount", type=float, help="of later turns' rewards")
    cli.add_argument("--curriculum", choices=["three_tier", "four_tier"])
    cli.add_argument("--reward-preset", choices=list(PRESETS))
    cli.add_argument("--stop-reward", type=float, help="a correct turn paid so much is the last")
    cli.add_argument("--temperature", type=float)
    cli.add_argument("--max-prompt-tokens", type=int)
    cli.add_argument("--max-response-tokens", type=int)
    cli.add_argument("--num-tasks", type=int, help="different tasks to draw prompts from")
    cli.add_argument("--skip-tasks", type=int, help="the first ones, which SFT had: its examples")
    cli.add_argument("--max-task-ops", type=int, help="longest composition among the tasks")
    cli.add_argument("--task-scope", choices=["starter", "all"], help="all: what was judged here")
    cli.add_argument("--lora-rank", type=int, help="0: all weights")
    cli.add_argument("--device", choices=["auto", "cpu", "cuda"])
    cli.add_argument("--num-gpus", type=int)
    cli.add_argument("--judge-gpus", type=int, help="more GPUs, which judge and do nothing else")
    cli.add_argument("--gpu-memory-utilization", type=float, help="share of each GPU for vLLM")
    cli.add_argument("--sandbox", choices=["auto", "bubblewrap", "docker", "native"])
    cli.add_argument("--no-docker", action="store_true", help="never judge in Docker")
    cli.add_argument(
        "--judge-backend", choices=["auto", "cuda", "emulator"], help="what runs the candidates"
    )
    cli.add_argument("--save-every", type=int, help="steps between checkpoints")
    cli.add_argument("--seed", type=int)
    cli.add_argument(
        "--overrides",
        action="append",
        dest="overrides",
        metavar="KEY=VALUE",
        help="for verl, after the recipe's; may be repeated",
    )
    cli.add_argument("--wandb", action=argparse.BooleanOptionalAction)
    return cli.parse_args(arguments)


def start_model(given: dict[str, object], output: Path) -> Path:
    """The whole model that RL starts from; an adapter is merged once. Raises UsageError."""
    if "generator_checkpoint" not in given:
        raise UsageError("--generator-checkpoint is missing: make one with run_sft_training.py")
    checkpoint = Path(str(given.pop("generator_checkpoint")))
    other = given.pop("optimizer_checkpoint", None)
    if other is not None and not same_weights(checkpoint, Path(str(other))):
        raise UsageError(
            f"{checkpoint} and {other} differ: RL starts both roles from one model, so give it as "
            "--generator-checkpoint alone"
        )
    if is_model(checkpoint):
        return checkpoint
    if not is_adapter(checkpoint):
        raise UsageError(
            f"{checkpoint} is neither a model nor an adapter: make one with run_sft_training.py"
        )
    merged = RLFolder(output).start_model
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


def make_config(given: dict[str, object], recipe: RecipeFile, model: Path) -> MultiTurnRLConfig:
    """The recipe with the given flags. Raises UsageError."""
    flags = (("sandbox", "sandbox"), ("judge_backend", "backend"))
    judge: dict[str, object] = {name: given.pop(flag) for flag, name in flags if flag in given}
    if given.pop("no_docker", False):
        if judge.get("sandbox") == "docker":
            raise UsageError("--no-docker and --sandbox docker exclude each other: choose one")
        if judge.get("sandbox", "auto") == "auto":
            judge["sandbox"] = "no-docker"
    if "overrides" in given:
        given["overrides"] = [*recipe.rl.get("overrides", ()), *given["overrides"]]
    return rl_config(recipe, {**given, "model_path": str(model), "judge_args": judge})


def dry_run(config: MultiTurnRLConfig) -> None:
    """Print what would run and where; verl checks its own configuration. Raises UsageError."""
    from coding_framework.training.placement import cluster_commands, placement
    from coding_framework.training.verl.dry_run import validated

    print(config.model_dump_json(indent=2))
    for part, place in placement(config):
        print(f"{part:<16} {place}")
    for line in cluster_commands(config):
        print(line)
    validated(with_dtype(config))
    print("verl accepts this configuration; nothing was started")


def make_pool(given: dict[str, object], recipe: RecipeFile) -> dict[str, Any]:
    """Which tasks, by the flags, then the recipe's `run` section."""
    fields = (
        ("num_tasks", "rl_tasks", 256),
        ("skip_tasks", "rl_skip_tasks", 0),
        ("max_task_ops", "task_max_ops", 3),
        ("task_scope", "task_scope", "starter"),
    )
    return {flag: given.pop(flag, recipe.run.get(field, other)) for flag, field, other in fields}


def run(
    config: MultiTurnRLConfig,
    num_tasks: int,
    skip_tasks: int,
    max_task_ops: int | None,
    task_scope: Any,
) -> RLResult:
    """Tasks, training, result."""
    from coding_framework.data.data_pipeline import training_tasks

    prompts = config.num_episodes * config.prompts_per_step
    count = num_tasks if config.curriculum else min(prompts, num_tasks)
    first = training_tasks(
        skip_tasks + count, config.seed, max_steps=max_task_ops, scope=task_scope
    )
    return asyncio.run(MultiAgentVERLTrainer(config, tasks=first[skip_tasks:]).train())


def main(arguments: list[str] | None = None) -> int:
    given = vars(parse(arguments))
    try:
        recipe = read_recipe(given.pop("config"))
        pool = make_pool(given, recipe)
        if given.pop("dry_run"):
            model = given.pop("generator_checkpoint", recipe.base_model or "the SFT model")
            given.pop("optimizer_checkpoint", None)
            dry_run(make_config(given, recipe, Path(str(model))))
            return 0
        output = Path(str(given.get("output_dir") or recipe.rl.get("output_dir", "rl_checkpoints")))
        quiet_libraries()
        config = make_config(given, recipe, start_model(given, output))
        configure_logging(RLFolder(output).log)
        print(config.model_dump_json(indent=2), file=sys.stderr)
        result = run(config, **pool)
    except UsageError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except CodingFrameworkError as e:
        print(f"error: {e}", file=sys.stderr)
        return 3
    print(result.model_dump_json(indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
