#!/usr/bin/env python3
"""Supervised fine-tuning of generator and optimizer on synthesised, verified kernels.

    python run_sft_training.py --num-examples 500 --epochs 3 --output-dir sft_checkpoints

With --data archive the generator learns the AI CUDA Engineer Archive's kernels that are correct.
Writes OUTPUT_DIR/generator and OUTPUT_DIR/optimizer (LoRA adapters), OUTPUT_DIR/model (merged),
OUTPUT_DIR/config.json and, a line a step and an epoch, OUTPUT_DIR/metrics.jsonl. After each epoch
the loss on held-out examples is taken, and answers to held-out tasks are judged. The same command
goes on after a kill. Without a GPU the defaults are those for SmolLM2-135M on a CPU. --config takes
a recipe of configs/; a flag wins over it.
"""

from __future__ import annotations

import coding_framework.commands.interrupts  # noqa: F401  (Ctrl-C while the rest is imported)

# isort: split
import argparse
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coding_framework.commands.failures import run_script
from coding_framework.commands.flags import add_flags, add_switch, script_parser
from coding_framework.errors import UsageError, first_complaint
from coding_framework.monitoring.logs import configure_logging, quiet_libraries
from coding_framework.run import quickstart
from coding_framework.run.model_folder import fine_tune
from coding_framework.run.recipe import Recipe
from coding_framework.training.recipes import (
    RecipeFile,
    on_cpu,
    read_recipe,
    require_gpus,
    sft_config,
)
from coding_framework.training.sft_config import SFTConfig, SFTResult

FLAGS = (
    "base_model", "start_adapter", "output_dir", "num_examples", "optimizer_examples", "per_role",
    "data", "archive", "generator_target",
    "extra_examples", "max_task_ops", "max_task_tier", "epochs", "max_steps", "batch_size",
    "gradient_accumulation_steps", "learning_rate", "max_length", "lora_r", "lora_alpha",
    "lora_dropout", "lora_layers", "quantization", "device", "packing", "by_length",
    "gradient_checkpointing", "num_gpus", "minutes", "held_out_examples",
    "held_out_tasks", "save_every", "seed", "wandb",
)  # fmt: skip
"""Fields of `SFTConfig` that are flags."""
FIRST = (
    "config", "base_model", "output_dir", "num_examples", "epochs", "learning_rate", "device",
    "held_out_tasks", "dry_run",
)  # fmt: skip
"""What `--help` shows."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; a flag that is not given keeps the recipe's value. Raises UsageError."""
    cli = script_parser(__doc__)
    cli.first = FIRST
    add_flags(cli, SFTConfig, FLAGS, cpu=SFTConfig.cpu())
    add_flags(cli, Recipe, ["task_scope", "sandbox"])
    add_switch(cli, "--dry-run", "print what would be trained, and start nothing")
    given: argparse.Namespace = cli.parse_args(arguments)
    return given


def evaluation_recipe(sandbox: str | None, recipe: RecipeFile, config: SFTConfig) -> Recipe:
    """How held-out tasks are answered and judged: as in a whole run. Raises UsageError."""
    base = quickstart.FULL if on_cpu(config.device) else Recipe()
    changes = {**recipe.run, "device": "cpu" if on_cpu(config.device) else "cuda"}
    if sandbox is not None:
        changes["sandbox"] = sandbox
    try:
        return Recipe.model_validate({**base.model_dump(), **changes})
    except ValidationError as e:
        raise UsageError(first_complaint(e)) from e


def run(config: SFTConfig, task_scope: Any, recipe: Recipe) -> SFTResult:
    """Examples, training, result."""
    from coding_framework.agents.models import resolve_model

    base = resolve_model(config.base_model)  # first: an unknown model is said at once
    return fine_tune(config, task_scope, recipe.evaluation, recipe.judging, resolve=lambda _: base)


def main(arguments: list[str] | None = None) -> int:
    return run_script(lambda: train(arguments))


def train(arguments: list[str] | None) -> int:
    given = vars(parse(arguments))
    recipe = read_recipe(given.pop("config"))
    scope = given.pop("task_scope", recipe.run.get("task_scope", "starter"))
    sandbox = given.pop("sandbox", None)
    dry_run = given.pop("dry_run")
    config = sft_config(recipe, given)
    if dry_run:
        print(config.model_dump_json(indent=2))
        print("SFT accepts this configuration; nothing was started")
        return 0
    require_gpus(config.device, config.num_gpus)
    held_out = evaluation_recipe(sandbox, recipe, config)
    configure_logging(Path(config.output_dir) / "log.jsonl")
    quiet_libraries()
    print(config.model_dump_json(indent=2), file=sys.stderr)
    print(run(config, scope, held_out).model_dump_json(indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
