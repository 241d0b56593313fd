#!/usr/bin/env python3
"""Supervised fine-tuning of generator and optimizer on synthesised, verified kernels.

    python run_sft_training.py --num-examples 500 --epochs 3 --output-dir sft_checkpoints

Writes OUTPUT_DIR/generator and OUTPUT_DIR/optimizer (LoRA adapters), OUTPUT_DIR/model (merged) and
OUTPUT_DIR/config.json. The same command goes on after a kill. Without a GPU the defaults are those
for SmolLM2-135M on a CPU. --config takes a recipe of configs/; a flag wins over it.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.monitoring.logs import configure_logging, quiet_libraries
from coding_framework.training.recipes import read_recipe, sft_config
from coding_framework.training.sft import SFTConfig, SFTResult, load_examples, train_sft


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
    cli.add_argument("--save-every", type=int, help="steps between checkpoints")
    cli.add_argument("--seed", type=int)
    cli.add_argument("--wandb", action=argparse.BooleanOptionalAction)
    return cli.parse_args(arguments)


def run(config: SFTConfig, task_scope: Any) -> SFTResult:
    """Examples, training, result."""
    from coding_framework.agents.models import resolve_model
    from coding_framework.data.data_pipeline import training_examples

    base = resolve_model(config.base_model)  # first: an unknown model is said at once
    examples = load_examples(config, partial(training_examples, scope=task_scope))
    return train_sft(config, examples, resolve=lambda _: base)


def main(arguments: list[str] | None = None) -> int:
    given = vars(parse(arguments))
    try:
        recipe = read_recipe(given.pop("config"))
        scope = given.pop("task_scope", recipe.run.get("task_scope", "starter"))
        config = sft_config(recipe, given)
        configure_logging(Path(config.output_dir) / "log.jsonl")
        quiet_libraries()
        print(config.model_dump_json(indent=2), file=sys.stderr)
        result = run(config, scope)
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
