"""Every command of TRAINING_GUIDE.md is one that the scripts take, with the effect that is said.

The quick test is run for real by test_quickstart.py, SFT and RL at small size by the tests of
tests/integration/training; here each command is parsed and its settings are made, and dry runs run.
"""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

from coding_framework import cli
from coding_framework.training.recipes import read_recipe, rl_config, sft_config

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "TRAINING_GUIDE.md").read_text()

pytestmark = pytest.mark.system


def commands(script: str) -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```", GUIDE, re.M | re.S)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines() if line]
    assert all(line[:3] == ["uv", "run", "python"] for line in lines)
    return [line[4:] for line in lines if line[3] == script]


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / name))


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("flags", commands("launch_complete_cuda_training.py"), ids=" ".join)
def test_the_whole_run_takes_it(flags: list[str]) -> None:
    made = script("launch_complete_cuda_training.py")
    whole = made["make_run"](vars(made["parse"](flags)))

    assert whole.sft_config("m").output_dir.startswith(str(whole.folder))
    assert whole.rl_config("m").num_episodes >= 1


@pytest.mark.parametrize("flags", commands("run_sft_training.py"), ids=" ".join)
def test_sft_takes_it(flags: list[str]) -> None:
    given = vars(script("run_sft_training.py")["parse"](flags))
    for other in ("task_scope", "dry_run"):
        given.pop(other, None)
    assert sft_config(read_recipe(given.pop("config")), given).num_examples == 500


def test_the_set_of_mistakes_is_what_sft_is_given() -> None:
    (line,) = re.findall(r"^uv run cuda-rl (data mistakes .*)", GUIDE, re.M)
    made = cli.build_parser().parse_args(shlex.split(line))
    given = [flags for flags in commands("run_sft_training.py") if "--extra-examples" in flags]
    assert [flags[flags.index("--extra-examples") + 1] for flags in given] == [str(made.output)]


@pytest.mark.parametrize("flags", commands("run_multiturn_rl_training.py"), ids=" ".join)
def test_rl_takes_it(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rl = script("run_multiturn_rl_training.py")
    if "--dry-run" in flags:
        assert rl["main"](flags) == 0
        assert "nothing was started" in capsys.readouterr().out
        return
    given = vars(rl["parse"](flags))
    checkpoint = given.pop("generator_checkpoint")
    if "optimizer_checkpoint" in given:
        given["role_models"] = {"optimizer": given.pop("optimizer_checkpoint")}
    given = {k: v for k, v in given.items() if k not in ("config", "dry_run")}
    config = rl_config(read_recipe(None), {**given, "model_path": checkpoint})
    assert config.algorithm in flags or config.algorithm == "grpo"


def test_files_that_the_guide_names_are_there() -> None:
    named = set(re.findall(r"`((?:configs|src)/[\w/.]*\w)`", GUIDE))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
