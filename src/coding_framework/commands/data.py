"""`cuda-rl data`: build, audit and describe data. `build_data.py` does it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from coding_framework.commands.failures import EXIT_HIT, EXIT_OK
from coding_framework.commands.flags import (
    add_actions,
    add_command,
    add_flags,
    add_json,
    config_from,
)
from coding_framework.commands.options import MixtureOptions, TaskSelection
from coding_framework.commands.tasks import add_selection
from coding_framework.errors import UsageError
from coding_framework.types import Config, TaskScope


class SftSetOptions(Config):
    """What a set of supervised examples is built from."""

    source: Literal["synthesis", "archive"] = "synthesis"
    """synthesis: our own tasks and kernels; archive: kernels of the AI CUDA Engineer Archive that
    our judge finds correct."""
    archive: str | None = None
    """With --source archive: its file, its folder or its name on the hub. Default: the hub."""
    allow_synthetic: bool = False
    """With --source archive: where it cannot be read, take synthesised examples. The manifest says
    so."""
    only_judged: bool = False
    """Judge nothing now: take only kernels that have been judged before."""
    yes: bool = False
    """Judge what was never judged, however long it takes."""
    workers: int | None = Field(default=None, ge=0)
    """Processes that judge. Default, and 0: one a core."""
    output: Path | None = None
    """Folder of the set. Default: datasets/ in the cache of this machine."""


class MistakesOptions(Config):
    """Which mistakes become examples."""

    per_task: int = Field(default=8, ge=1)
    """Most mistakes that are taken of one task."""
    task_scope: TaskScope = "starter"
    """starter: tasks whose kernels ship with the package; all: also tasks whose kernels were judged
    on this machine (`cuda-rl tasks build`)."""
    seed: int = Field(default=0, ge=0)
    """Seed of the draw"""


def add_to(commands: Any) -> None:
    actions = add_actions(commands, "data", "Build, audit and describe data.")
    p = add_command(actions, "build-sft", run_build_sft, "Build supervised examples, judged.")
    add_flags(p, SftSetOptions, SftSetOptions.model_fields)
    add_selection(p, ["scope", "family", "tier"])
    add_flags(p, TaskSelection, ["count"], spelled={"count": ("--tasks",)})
    text = "Look for held-out tasks in the training data. The exit status is 1 where one is found."
    p = add_command(actions, "audit", run_audit, text)
    p.add_argument(
        "--outside",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="problems from outside (.py, .jsonl, a folder); may be given again",
    )
    add_json(p, "print the report as one JSON object")
    p = add_command(actions, "card", run_card, "Write the card of a set of examples.")
    p.add_argument(
        "--examples",
        type=Path,
        default=None,
        metavar="PATH",
        help="file or folder of the set. Default: the set that `data build-sft` built last",
    )
    text = "Build the mixture that SFT on modules learns from, and say what it consists of."
    p = add_command(actions, "mixture", run_mixture, text)
    add_flags(p, MixtureOptions, MixtureOptions.model_fields)
    add_flags(p, SftSetOptions, ["only_judged", "workers", "output"])
    add_json(p, "print the statistics as one JSON object")
    text = "Build repairs of the wrong kernels in stored conversations about training tasks."
    p = add_command(actions, "mistakes", run_mistakes, text)
    p.add_argument(
        "--conversations",
        required=True,
        type=Path,
        nargs="+",
        metavar="FILE",
        help="JSON lines that RL (attempts/) or an evaluation stored",
    )
    p.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="JSON lines of examples"
    )
    add_flags(p, MistakesOptions, MistakesOptions.model_fields)


def run_build_sft(args: Namespace) -> int:
    options = config_from(SftSetOptions, args)
    selection = config_from(TaskSelection, args)
    if options.source == "synthesis" and (options.archive or options.allow_synthetic):
        raise UsageError("--archive and --allow-synthetic are for --source archive")
    from coding_framework.commands.build_data import build_archive_sft, build_sft
    from coding_framework.data.provenance import ARCHIVE

    workers = options.workers or None
    if options.source == "archive":
        manifest = build_archive_sft(
            options.archive or ARCHIVE,
            options.output,
            allow_synthetic=options.allow_synthetic,
            limit=selection.count,
            workers=workers,
        )
    else:
        manifest = build_sft(
            selection,
            options.output,
            judge=not options.only_judged,
            workers=workers,
            however_long=options.yes,
        )
    print(manifest.model_dump_json(indent=2))
    return EXIT_OK


def run_mixture(args: Namespace) -> int:
    options, building = config_from(MixtureOptions, args), config_from(SftSetOptions, args)
    from coding_framework.commands.build_data import build_mixture

    found = build_mixture(
        options, building.output, judge=not building.only_judged, workers=building.workers or None
    )
    print(found.model_dump_json(indent=2) if args.json else found.table())
    return EXIT_OK


def run_audit(args: Namespace) -> int:
    from coding_framework.commands.build_data import audit

    report = audit(args.outside)
    print(report.model_dump_json() if args.json else report.table())
    return EXIT_HIT if report.hits else EXIT_OK


def run_card(args: Namespace) -> int:
    from coding_framework.commands.build_data import card

    print(card(args.examples))
    return EXIT_OK


def run_mistakes(args: Namespace) -> int:
    options = config_from(MistakesOptions, args)
    from coding_framework.commands.build_data import build_mistakes

    manifest = build_mistakes(
        args.conversations,
        args.output,
        per_task=options.per_task,
        seed=options.seed,
        scope=options.task_scope,
    )
    print(manifest.model_dump_json(indent=2))
    return EXIT_OK
