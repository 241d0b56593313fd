"""launch_complete_cuda_training.py: flags, recipes and what is left out. The stages are replaced
here; tests/system runs the real ones."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from coding_framework.run import quickstart
from coding_framework.run import stages as pipeline
from coding_framework.run.recipe import WholeRun
from coding_framework.store.folder import RunFolder
from support.fake_stages import fake_stages

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "launch_complete_cuda_training.py"))


def run_of(*flags: str) -> WholeRun:
    whole: WholeRun = SCRIPT["make_run"](vars(SCRIPT["parse"](list(flags))))
    return whole


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the script in this process with replaced stages; gives status and calls."""
    monkeypatch.setattr(pipeline.WholeRun, "held_out", lambda self: [])

    def run(*flags: str) -> tuple[int, list[str]]:
        calls: list[str] = []
        monkeypatch.setattr(pipeline, "STAGES", fake_stages(calls))
        output = ["--output-dir", str(tmp_path / "out")]
        return SCRIPT["main"]([*output, *flags]), calls

    return run


def test_without_flags_it_is_the_recipe_of_this_machine() -> None:
    whole = run_of()
    assert whole.recipe == quickstart.FULL
    assert whole.base_model == quickstart.DEFAULT_MODEL
    assert run_of("--quick-test").recipe == quickstart.SMOKE


def test_every_flag_reaches_its_stage(tmp_path: Path) -> None:
    whole = run_of(
        "--sft-examples", "7", "--sft-batch-size", "2", "--sft-gradient-accumulation-steps", "3",
        "--num-episodes", "5", "--rl-batch-size", "4", "--num-gpus", "1", "--algorithm", "dapo",
        "--no-docker-sandbox", "--held-out-tasks", "9", "--seed", "2",
        "--output-dir", str(tmp_path), "--base-model", "m",
    )  # fmt: skip
    sft, rl = whole.sft_config("m"), whole.rl_config("m")
    assert (sft.num_examples, sft.batch_size, sft.gradient_accumulation_steps) == (7, 2, 3)
    assert (rl.num_episodes, rl.prompts_per_step, rl.num_gpus) == (5, 4, 1)
    assert (rl.algorithm, rl.seed, rl.judge_args) == ("dapo", 2, {"sandbox": "no-docker"})
    assert (whole.recipe.held_out_tasks, whole.recipe.sandbox) == (9, "no-docker")


def test_a_model_that_sft_has_not_taught_is_told_the_contract() -> None:
    whole = run_of("--config", str(ROOT / "configs" / "one_gpu.yaml"))
    assert whole.recipe.base_prompts == "v2"
    assert whole.rl_config("m").prompts == "v3"  # what SFT teaches
    assert whole.rl_config("m", taught=False).prompts == "v2"
    assert whole.recipe.evaluation.prompts is None  # each evaluation is told its own


def test_a_recipe_file_is_taken_and_a_flag_wins_over_it() -> None:
    file = ("--config", str(ROOT / "configs" / "one_gpu.yaml"))
    whole = run_of(*file, "--rl-batch-size", "16")
    assert (whole.recipe.device, whole.recipe.samples_per_task) == ("cuda", 4)
    assert whole.recipe.rl["prompts_per_step"] == 16
    assert whole.base_model == "Qwen/Qwen2.5-Coder-1.5B-Instruct"


@pytest.mark.parametrize(
    ("flag", "stages", "labels"),
    [
        ("--skip-sft", ["model", "eval_base", "rl", "eval_rl"], ["base", "rl"]),
        ("--skip-rl", ["model", "eval_base", "sft", "eval_sft"], ["base", "sft"]),
    ],
)
def test_what_is_skipped_is_neither_run_nor_reported(
    launch: Any, tmp_path: Path, flag: str, stages: list[str], labels: list[str]
) -> None:
    assert launch("--quick-test", flag) == (0, stages)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["stages"]) == labels
    claims = {name for name, said in summary["learning"].items() if said is not None}
    rl = {"rl_above_base", "at_least_four_rl_steps_with_gradient"}
    assert claims == (rl if flag == "--skip-sft" else {"sft_above_base"})
    assert "<title>Quick test</title>" in (tmp_path / "out" / "report.html").read_text()


def test_rejection_fine_tuning_comes_between_sft_and_rl_where_it_is_asked_for(
    launch: Any, tmp_path: Path
) -> None:
    order = ["model"]
    for name in ("base", "sft", "rft", "rl"):
        order += [f"eval_{name}"] if name == "base" else [name, f"eval_{name}"]
    assert launch("--quick-test", "--rft") == (0, order)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["stages"]) == ["base", "sft", "rft", "rl"]
    whole = run_of("--quick-test", "--rft")
    options = whole.rejection_options()
    assert (options.tasks, options.samples, options.max_new_tokens) == (2, 4, 64)
    assert options.prompts == whole.taught_prompts


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_recipe_for_gpus_is_refused_without_one_before_anything_is_written(
    launch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = ("--config", str(ROOT / "configs" / "one_gpu.yaml"))
    assert launch(*recipe) == (2, [])
    assert "1 GPUs were asked for and 0 are here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert launch(*recipe, "--skip-sft") == (2, [])
    assert "1 GPUs were asked for and 0 are here" in capsys.readouterr().err


def test_a_dry_run_says_what_would_run_and_starts_nothing(
    launch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = ("--config", str(ROOT / "configs" / "eight_gpus.yaml"))
    assert launch(*recipe, "--dry-run") == (0, [])
    said = capsys.readouterr().out
    assert "stages: model, eval_base, sft, eval_sft, rl, eval_rl" in said
    assert said.endswith("verl accepts this configuration; nothing was started\n")
    assert not (tmp_path / "out").exists()


def test_a_finished_run_keeps_nothing_that_only_a_resumed_one_needs(
    launch: Any, tmp_path: Path
) -> None:
    rl = RunFolder(tmp_path / "out").rl
    state = rl.checkpoints / "global_step_1" / "actor" / "optim.pt"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"weights")
    assert launch("--quick-test")[0] == 0
    assert not rl.checkpoints.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--skip-sft", "--skip-rl"), "skip SFT or RL, not both"),
        (
            ("--sft-batch-size", "0"),
            "--sft-batch-size cannot be 0: give a whole number",
        ),
        (("--num-episodes", "0"), "--num-episodes cannot be 0: give a whole number of at least 1"),
        (("--config", "no/such.yaml"), "cannot be read"),
    ],
)
def test_wrong_use_is_one_sentence_before_anything_runs(
    launch: Any, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    assert launch(*flags) == (2, [])
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1
