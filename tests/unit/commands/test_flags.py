"""Flags come from configs: none is lost, each is explained, a refusal is one sentence."""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from coding_framework import cli
from coding_framework.commands.flags import FlagParser, add_flags, config_from
from coding_framework.errors import UsageError
from coding_framework.types import Config, SandboxName

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
SCRIPTS = (
    "run_sft_training.py",
    "run_multiturn_rl_training.py",
    "launch_complete_cuda_training.py",
)
KEPT = {
    "cuda-rl": "--version",
    "cuda-rl quickstart": "--smoke --output-dir --base-model --seed",
    "cuda-rl judge": ("--task --kernel --backend --sandbox --seed --baselines --profile --json"),
    "cuda-rl judge-many": (
        "--tasks-and-kernels --output --workers --ray --backend --sandbox --seed "
        "--baselines --profile --json"
    ),
    "cuda-rl solve": (
        "--task --model --adapter --optimizer-adapter --server --turns --candidates "
        "--reward --stop-reward --temperature --max-new-tokens --prompts --tester "
        "--output-dir --backend --sandbox --seed --baselines --profile"
    ),
    "cuda-rl replay": "run_path episode --reward --json",
    "cuda-rl eval": "what --suite --answers --output-dir --baseline --dry-run --junit --json",
    "cuda-rl eval compare": "one other --p --json",
    "cuda-rl eval report": "folder",
    "cuda-rl eval verify": "folder --judge-again --workers --json",
    "cuda-rl tasks list": "--split --family --tier --json",
    "cuda-rl tasks show": "task --json",
    "cuda-rl tasks build": "--split --family --tier --tasks --workers --output",
    "cuda-rl tasks stats": "--split --family --tier --json",
    "cuda-rl data build-sft": (
        "--source --archive --allow-synthetic --tasks --tier --only-judged --workers --output"
    ),
    "cuda-rl data audit": "--outside --json",
    "cuda-rl data card": "--examples",
    "cuda-rl data mistakes": "--conversations --output --per-task --task-scope --seed",
    "cuda-rl doctor": "--json",
    "run_sft_training.py": (
        "--config --base-model --output-dir --num-examples --optimizer-examples "
        "--generator-target --extra-examples --max-task-ops --task-scope --epochs "
        "--max-steps --batch-size --gradient-accumulation-steps --learning-rate "
        "--max-length --lora-r --lora-alpha --lora-dropout --quantization --device "
        "--packing --no-packing --held-out-examples --held-out-tasks --sandbox "
        "--save-every --seed --wandb --no-wandb"
    ),
    "run_multiturn_rl_training.py": (
        "--config --dry-run --generator-checkpoint --optimizer-checkpoint --output-dir "
        "--num-episodes --max-turns --prompts --policy --phase-steps --rl-batch-size "
        "--samples-per-prompt --learning-rate --warmup-steps --weight-decay --algorithm "
        "--clip-ratio-low --clip-ratio-high --kl-coefficient --sampling-rounds "
        "--overlong-buffer-tokens --gae-lambda --gae-gamma --critic-learning-rate "
        "--discount --curriculum --reward-preset --stop-reward --temperature "
        "--max-prompt-tokens --max-response-tokens --num-tasks --skip-tasks "
        "--max-task-ops --task-scope --lora-rank --device --num-gpus --judge-gpus "
        "--gpu-memory-utilization --sandbox --no-docker --judge-backend --save-every "
        "--seed --overrides --wandb --no-wandb"
    ),
    "launch_complete_cuda_training.py": (
        "--config --quick-test --output-dir --base-model --num-gpus --sft-examples "
        "--sft-batch-size --sft-gradient-accumulation-steps --num-episodes "
        "--rl-batch-size --algorithm --held-out-tasks --skip-sft --skip-rl "
        "--no-docker-sandbox --seed"
    ),
}
"""Flags and arguments that users' scripts may hold. One may be added; none may go."""


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser of the project by its command."""
    yield from walk("cuda-rl", cli.build_parser())
    for script in SCRIPTS:
        yield script, script_parser_of(script)


def walk(name: str, parser: FlagParser) -> Iterator[tuple[str, FlagParser]]:
    yield name, parser
    for word, child in parser.actions.items():
        yield from walk(f"{name} {word}", child)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                yield from walk(f"{name} {word}", child)


def script_parser_of(script: str) -> argparse.ArgumentParser:
    """The parser that the script parses with."""
    found: list[argparse.ArgumentParser] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlagParser, "parse_args", lambda self, *_: found.append(self))
        runpy.run_path(str(ROOT / script))["parse"]([])
    return found[0]


PARSERS = dict(parsers())


@pytest.mark.parametrize("command", KEPT)
def test_no_flag_is_lost(command: str) -> None:
    actions = PARSERS[command]._actions
    there = {name for a in actions for name in a.option_strings or [a.dest]}
    assert set(KEPT[command].split()) <= there


@pytest.mark.parametrize("command", PARSERS)
def test_every_flag_is_explained_and_a_sandbox_can_be_kept_from_docker(command: str) -> None:
    actions = PARSERS[command]._actions
    silent = [a.dest for a in actions if not a.help and a.dest not in ("command", "action")]
    assert silent == []
    flags = {name for a in actions for name in a.option_strings}
    assert ("--sandbox" in flags) == ("--no-docker" in flags) == ("--no-docker-sandbox" in flags)


class Knobs(Config):
    rate: float = Field(default=0.5, gt=0.0, lt=1.0)
    """Share of it, 100% at most.

    A reader of the code is told more."""
    steps: int = Field(default=3, ge=1)
    """Steps."""
    kind: Literal["a", "b"] | None = None
    """Kind. Default: none."""
    packing: bool = True
    """Pack."""
    sandbox: SandboxName = "auto"
    """Sandbox."""
    note: str = ""
    """Note."""
    limit_s: float = 1_209_600.0
    """Limit."""
    kept_in: Path = Path("here")
    """Folder. Default: here."""


def knobs(*arguments: str) -> Knobs:
    parser = FlagParser(prog="knobs")
    add_flags(parser, Knobs, Knobs.model_fields)
    return config_from(Knobs, parser.parse_args(arguments))


def test_what_is_given_is_set_and_the_rest_is_the_configs() -> None:
    assert knobs() == Knobs()
    given = knobs("--rate", "0.25", "--steps", "7", "--kind", "b", "--no-packing")
    assert given == Knobs(rate=0.25, steps=7, kind="b", packing=False)


def test_help_is_the_first_paragraph_and_the_default_here_and_on_a_cpu() -> None:
    parser = FlagParser(prog="knobs")
    add_flags(parser, Knobs, Knobs.model_fields, cpu=Knobs(steps=1))
    text = " ".join(parser.format_help().split())
    assert "Share of it, 100% at most (default: 0.5)" in text
    assert "Steps (default: 3; on a CPU: 1)" in text
    assert "A reader of the code" not in text
    assert "Limit (default: 1209600)" in text
    assert "--kept-in PATH Folder. Default: here." in text
    assert "(default: )" not in text


@pytest.mark.parametrize("alias", ["--no-docker", "--no-docker-sandbox"])
def test_the_aliases_leave_docker_out(alias: str) -> None:
    assert knobs(alias).sandbox == "no-docker"
    assert knobs(alias, "--sandbox", "auto").sandbox == "no-docker"
    assert knobs(alias, "--sandbox", "native").sandbox == "native"
    with pytest.raises(UsageError, match="exclude each other: choose one"):
        knobs("--sandbox", "docker", alias)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rate", "1"], "--rate cannot be 1: give a number above 0 and below 1"),
        (["--rate", "nan"], "--rate cannot be nan: give a number"),
        (["--steps", "0"], "--steps cannot be 0: give a whole number of at least 1"),
        (["--steps", "x y"], "--steps cannot be 'x y': give a whole number"),
        (["--kind", "c"], "--kind cannot be 'c': choose one of a, b"),
        (["--step", "1"], "has no flag '--step': did you mean --steps?"),
    ],
)
def test_a_refusal_names_the_flag_and_what_it_takes(arguments: list[str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        knobs(*arguments)
    assert told in str(error.value)


def test_help_shows_the_flags_that_matter_and_help_all_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = FlagParser(prog="many")
    for number in range(20):
        parser.add_argument(f"--flag-{number}", help=f"number {number}")
    parser.add_argument("--needed", required=True, help="cannot be left out")
    parser.first = ("flag_3", "flag_17")
    shown = parser.format_help()
    assert all(f"--{name} " in shown for name in ("flag-3", "flag-17", "needed"))
    assert "--flag-4 " not in shown
    assert shown.endswith("18 more flags: many --help-all\n")
    with pytest.raises(SystemExit):
        parser.parse_args(["--help-all"])
    told = capsys.readouterr().out
    assert all(f"--flag-{number} " in told for number in range(20))


def test_a_command_of_few_flags_shows_them_all() -> None:
    parser = FlagParser(prog="few")
    parser.add_argument("--one", help="the only one")
    assert "--one ONE" in parser.format_help()
    assert "help-all" not in parser.format_help()
