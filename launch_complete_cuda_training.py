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

import coding_framework.commands.interrupts  # noqa: F401  (Ctrl-C while the rest is imported)

# isort: split
import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coding_framework.commands.failures import require_trainers, run_script
from coding_framework.commands.flags import add_flags, add_switch, script_parser
from coding_framework.errors import UsageError, first_complaint
from coding_framework.run import quickstart
from coding_framework.run.recipe import Recipe, WholeRun
from coding_framework.run.stages import dry_run, run_stages
from coding_framework.training.recipes import RecipeFile, on_cpu, read_recipe, require_gpus
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.sft_config import SFTConfig

SFT_FLAGS = {
    "num_examples": ("--sft-examples",),
    "batch_size": ("--sft-batch-size",),
    "gradient_accumulation_steps": ("--sft-gradient-accumulation-steps",),
    "data": ("--data",),
    "archive": ("--archive",),
}
RL_FLAGS = {
    "num_episodes": ("--num-episodes",),
    "prompts_per_step": ("--rl-batch-size", "--prompts-per-step"),
    "num_gpus": ("--num-gpus",),
    "algorithm": ("--algorithm",),
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; a flag that is not given keeps the recipe's value. Raises UsageError."""
    cli = script_parser(__doc__)
    cli.add_argument(
        "--quick-test",
        "--smoke",
        action="store_true",
        default=False,
        help="run the whole flow with tiny counts: nothing is learnt",
    )
    cli.add_argument(
        "--output-dir",
        type=Path,
        metavar="DIR",
        help="folder of everything that the run leaves (default: outputs/training, or "
        "outputs/quick-test with --quick-test)",
    )
    add_flags(cli, RecipeFile, ["base_model", "device"])
    add_flags(cli, SFTConfig, SFT_FLAGS, spelled=SFT_FLAGS, cpu=SFTConfig.cpu())
    small = MultiTurnRLConfig.cpu(model_path="")
    add_flags(cli, MultiTurnRLConfig, RL_FLAGS, spelled=RL_FLAGS, cpu=small)
    cli.add_argument(
        "--wandb",
        action=argparse.BooleanOptionalAction,
        help="report to wandb too (default: where WANDB_API_KEY is set)",
    )
    add_flags(cli, Recipe, ["held_out_tasks", "sandbox"])
    add_switch(cli, "--skip-sft", "leave out SFT: RL starts from the base model")
    add_switch(cli, "--skip-rl", "leave out RL")
    add_flags(cli, WholeRun, ["rft", "seed"])
    add_switch(cli, "--dry-run", "print what would run where, and start nothing")
    given: argparse.Namespace = cli.parse_args(arguments)
    return given


def make_run(given: dict[str, Any]) -> WholeRun:
    """The recipe with the flags on top. Raises UsageError."""
    file = read_recipe(given["config"])
    if "device" in given:
        file = file.model_copy(update={"device": given["device"]})
    cpu = on_cpu(file.device)
    title = "Quick test" if given["quick_test"] else "Training"
    skip = frozenset(stage for stage in ("sft", "rl") if given[f"skip_{stage}"])
    default = quickstart.DEFAULT_MODEL if cpu else SFTConfig().base_model
    try:
        return WholeRun(
            title=title,
            recipe=make_recipe(given, file, cpu),
            folder=given.get("output_dir", Path("outputs") / title.lower().replace(" ", "-")),
            base_model=given.get("base_model") or file.base_model or default,
            seed=given.get("seed", WholeRun.model_fields["seed"].default),
            skip=skip,
            rft=given.get("rft", False),
        )
    except ValidationError as e:
        raise UsageError(first_complaint(e)) from e


def make_recipe(given: dict[str, Any], file: RecipeFile, cpu: bool) -> Recipe:
    """The machine's recipe, then the file's changes, then the flags'."""
    if given["quick_test"]:
        base = quickstart.SMOKE.model_copy(update={"device": "cpu" if cpu else "cuda"})
    else:
        base = quickstart.FULL if cpu else Recipe()
    changes: dict[str, Any] = {**file.run}
    both = {"wandb": given["wandb"]} if "wandb" in given else {}
    sft = {**both, **{k: given[k] for k in SFT_FLAGS if k in given}}
    rl = {**both, **{k: given[k] for k in RL_FLAGS if k in given}}
    changes["sft"] = {**base.sft, **file.sft, **sft}
    changes["rl"] = {**base.rl, **file.rl, **rl}
    changes |= {k: given[k] for k in ("held_out_tasks", "sandbox") if k in given}
    return Recipe.model_validate({**base.model_dump(), **changes})


def main(arguments: list[str] | None = None) -> int:
    return run_script(lambda: launch(vars(parse(arguments))))


def launch(given: dict[str, Any]) -> int:
    """Raises UsageError, also for GPUs that are not here."""
    device = given.get("device", read_recipe(given["config"]).device)
    if device == "auto":
        require_gpus(device, given.get("num_gpus"))
    require_trainers()
    whole = make_run(given)
    return dry_run(whole) if given["dry_run"] else run_stages(whole)


if __name__ == "__main__":
    raise SystemExit(main())
