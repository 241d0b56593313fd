#!/usr/bin/env python3
"""Supervised fine-tuning of generator and optimizer on synthesised, verified kernels.

    python run_sft_training.py --num-examples 500 --epochs 3 --output-dir sft_checkpoints

Writes OUTPUT_DIR/generator and OUTPUT_DIR/optimizer (LoRA adapters), OUTPUT_DIR/model (merged),
OUTPUT_DIR/config.json and, a line a step and an epoch, OUTPUT_DIR/metrics.jsonl. After each epoch
the loss on held-out examples is taken, and answers to held-out tasks are judged. The same command
goes on after a kill. Without a GPU the defaults are those for SmolLM2-135M on a CPU. --config takes
a recipe of configs/; a flag wins over it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coding_framework.errors import CodingFrameworkError, UsageError, first_complaint
from coding_framework.monitoring.logs import configure_logging, quiet_libraries
from coding_framework.run import quickstart
from coding_framework.run.model_folder import Suite, fine_tune
from coding_framework.run.recipe import Recipe
from coding_framework.training.recipes import (
    RecipeFile,
    on_cpu,
    read_recipe,
    sft_config,
)
from coding_framework.training.sft_config import SFTConfig, SFTResult


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; a flag that is not given keeps the recipe's value."""
    cli = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    cli.add_argument("--config", default=None, help="a recipe, e.g. configs/one_gpu.yaml")
    cli.add_argument("--base-model", help="local folder, hub name, or packaged model")
    cli.add_argument("--output-dir")
    cli.add_argument("--num-examples", type=int, help="examples of the generator")
    cli.add_argument("--optimizer-examples", type=int, help="default: as many")
    cli.add_argument("--generator-target", choices=["naive", "best"], help="kernel to learn")
    cli.add_argument("--extra-examples", metavar="FILE", help="learnt too: `cuda-rl data mistakes`")
    cli.add_argument("--max-task-ops", type=int, help="longest composition among the tasks")
    cli.add_argument("--task-scope", choices=["starter", "all"], help="all: what was judged here")
    cli.add_argument("--epochs", type=float)
    cli.add_argument("--max-steps", type=int)
    cli.add_argument("--batch-size", type=int)
    cli.add_argument("--gradient-accumulation-steps", type=int)
    cli.add_argument("--learning-rate", type=float)
    cli.add_argument("--max-length", type=int, help="tokens of prompt and answer")
    cli.add_argument("--lora-r", type=int)
    cli.add_argument("--lora-alpha", type=int)
    cli.add_argument("--lora-dropout", type=float)
    cli.add_argument("--quantization", choices=["auto", "nf4", "none"])
    cli.add_argument("--device", choices=["auto", "cpu", "cuda"])
    cli.add_argument(
        "--packing", action=argparse.BooleanOptionalAction, help="rows without padding"
    )
    cli.add_argument("--held-out-examples", type=int, help="for the loss after each epoch; 0: none")
    cli.add_argument("--held-out-tasks", type=int, help="judged after each epoch; 0: none")
    cli.add_argument("--sandbox", choices=["auto", "no-docker", "bubblewrap", "docker", "native"])
    cli.add_argument("--save-every", type=int, help="steps between checkpoints")
    cli.add_argument("--seed", type=int)
    cli.add_argument("--wandb", action=argparse.BooleanOptionalAction)
    return cli.parse_args(arguments)


def make_suite(sandbox: str | None, recipe: RecipeFile, config: SFTConfig) -> Suite:
    """How held-out tasks are answered and judged: as in a whole run. Raises UsageError."""
    base = quickstart.FULL if on_cpu(config.device) else Recipe()
    changes = {**recipe.run, "device": "cpu" if on_cpu(config.device) else "cuda"}
    if sandbox is not None:
        changes["sandbox"] = sandbox
    try:
        return Recipe.model_validate({**base.model_dump(), **changes}).suite
    except ValidationError as e:
        raise UsageError(first_complaint(e)) from e


def run(config: SFTConfig, task_scope: Any, suite: Suite) -> SFTResult:
    """Examples, training, result."""
    from coding_framework.agents.models import resolve_model

    base = resolve_model(config.base_model)  # first: an unknown model is said at once
    return fine_tune(config, task_scope, suite, resolve=lambda _: base)


def main(arguments: list[str] | None = None) -> int:
    given = vars(parse(arguments))
    try:
        recipe = read_recipe(given.pop("config"))
        scope = given.pop("task_scope", recipe.run.get("task_scope", "starter"))
        sandbox = given.pop("sandbox", None)
        config = sft_config(recipe, given)
        suite = make_suite(sandbox, recipe, config)
        configure_logging(Path(config.output_dir) / "log.jsonl")
        quiet_libraries()
        print(config.model_dump_json(indent=2), file=sys.stderr)
        result = run(config, scope, suite)
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
