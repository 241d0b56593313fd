"""`cuda-rl quickstart`: the whole run on a small model, in minutes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from pydantic import Field

from coding_framework.commands.failures import require_trainers
from coding_framework.commands.flags import add_command, add_flags, add_switch, config_from
from coding_framework.types import Config, SandboxName


class QuickstartOptions(Config):
    """What the command line says."""

    smoke: bool = False
    """Run the whole flow with tiny counts: it shows that everything works and learns nothing."""
    minutes: float = Field(default=20.0, gt=0.0)
    """Minutes that the run may take, set-up apart: it measures the machine first and fits SFT, RL
    and evaluations to it. Where they cannot hold what shows learning, it says so and takes
    longer."""
    output_dir: Path | None = None
    """Folder of everything that the run leaves. Default: outputs/quickstart, or
    outputs/quickstart-smoke with --smoke."""
    base_model: str | None = None
    """Model to start from: a name on the Hugging Face hub or a local folder. Default:
    SmolLM2-135M-Instruct."""
    sandbox: SandboxName = "auto"
    """Sandbox in which candidates run: auto takes the first that works here, no-docker the first
    that works and is not Docker."""
    seed: int = Field(default=0, ge=0)
    """Seed of data, training and sampling."""


def add_to(commands: Any) -> None:
    text = "Evaluate a small model, train it by SFT and multi-turn RL, evaluate after each."
    parser = add_command(commands, "quickstart", run, text)
    both = {"smoke": ("--smoke", "--quick-test")}
    add_flags(parser, QuickstartOptions, QuickstartOptions.model_fields, spelled=both)
    add_switch(parser, "--dry-run", "print the recipe, before it is fitted, and start nothing")


def run(args: Namespace) -> int:
    options = config_from(QuickstartOptions, args)
    require_trainers()
    from coding_framework.run import quickstart

    return quickstart.run(
        smoke=options.smoke,
        minutes=options.minutes,
        folder=options.output_dir,
        base_model=options.base_model,
        sandbox=options.sandbox,
        seed=options.seed,
        dry=args.dry_run,
    )
