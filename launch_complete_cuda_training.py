#!/usr/bin/env python3
"""The whole training in one folder: SFT, multi-turn RL, and an evaluation before and after each.

    python launch_complete_cuda_training.py --quick-test
    python launch_complete_cuda_training.py --config configs/one_gpu.yaml --output-dir outputs/first

Writes OUTPUT_DIR/report.html, summary.json, the checkpoints and every conversation. The same
command goes on after a kill. It is `cuda-rl quickstart` with a recipe of your own: without --config
the recipe of this machine (SmolLM2-135M-Instruct where there is no GPU, else
Qwen2.5-Coder-1.5B-Instruct).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coding_framework.errors import CodingFrameworkError, UsageError, first_complaint
from coding_framework.run import quickstart
from coding_framework.run.recipe import Plan, Recipe
from coding_framework.run.stages import run_plan
from coding_framework.training.recipes import RecipeFile, on_cpu, read_recipe
from coding_framework.training.sft_config import SFTConfig

SFT_FLAGS = ("num_examples", "batch_size", "gradient_accumulation_steps")
RL_FLAGS = ("num_episodes", "prompts_per_step", "num_gpus", "algorithm")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; a flag that is not given keeps the recipe's value."""
    cli = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    cli.add_argument("--config", default=None, help="a recipe, e.g. configs/one_gpu.yaml")
    cli.add_argument("--quick-test", action="store_true", default=False, help="tiny counts")
    cli.add_argument("--output-dir", type=Path, default=None)
    cli.add_argument("--base-model", help="local folder, hub name, or packaged model")
    cli.add_argument("--num-gpus", type=int, help="of RL")
    cli.add_argument("--sft-examples", dest="num_examples", type=int)
    cli.add_argument("--sft-batch-size", dest="batch_size", type=int)
    cli.add_argument(
        "--sft-gradient-accumulation-steps", dest="gradient_accumulation_steps", type=int
    )
    cli.add_argument("--num-episodes", type=int, help="steps of RL")
    cli.add_argument("--rl-batch-size", dest="prompts_per_step", type=int, help="prompts a step")
    cli.add_argument("--algorithm", choices=["grpo", "dapo", "ppo"])
    cli.add_argument("--held-out-tasks", type=int, help="tasks of an evaluation")
    cli.add_argument("--skip-sft", action="store_true", default=False, help="RL of the base model")
    cli.add_argument("--skip-rl", action="store_true", default=False)
    cli.add_argument("--no-docker-sandbox", action="store_true", help="never judge in Docker")
    cli.add_argument("--seed", type=int, default=0)
    return cli.parse_args(arguments)


def make_plan(given: dict[str, Any]) -> Plan:
    """The recipe with the flags on top. Raises UsageError."""
    file = read_recipe(given["config"])
    cpu = on_cpu(file.device)
    title = "Quick test" if given["quick_test"] else "Training"
    skip = frozenset(stage for stage in ("sft", "rl") if given[f"skip_{stage}"])
    default = quickstart.DEFAULT_MODEL if cpu else SFTConfig().base_model
    try:
        return Plan(
            title=title,
            recipe=make_recipe(given, file, cpu),
            folder=given["output_dir"] or Path("outputs") / title.lower().replace(" ", "-"),
            base_model=given.get("base_model") or file.base_model or default,
            seed=given["seed"],
            skip=skip,
        )
    except ValidationError as e:
        raise UsageError(first_complaint(e)) from e


def make_recipe(given: dict[str, Any], file: RecipeFile, cpu: bool) -> Recipe:
    """The machine's recipe, then the file's changes, then the flags'."""
    if given["quick_test"]:
        base = quickstart.SMOKE.model_copy(update={"device": "cpu" if cpu else "cuda"})
    else:
        base = quickstart.FULL if cpu else Recipe()
    changes: dict[str, Any] = {"expected_s": {}, **file.run}
    changes["sft"] = {**base.sft, **file.sft, **{k: given[k] for k in SFT_FLAGS if k in given}}
    changes["rl"] = {**base.rl, **file.rl, **{k: given[k] for k in RL_FLAGS if k in given}}
    if "held_out_tasks" in given:
        changes["held_out_tasks"] = given["held_out_tasks"]
    if given.get("no_docker_sandbox"):
        changes["sandbox"] = "no-docker"
    return Recipe.model_validate({**base.model_dump(), **changes})


def main(arguments: list[str] | None = None) -> int:
    given = vars(parse(arguments))
    try:
        return run_plan(make_plan(given))
    except UsageError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except CodingFrameworkError as e:
        print(f"error: {e}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("error: stopped: the same command goes on from where it was", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
