"""A run that the code of commit 7c3ba08 left, before `store/` was there, is read and resumed.

The files of old_run/ were written by that commit's own functions: the start of a quickstart, a
finished SFT run, an RL run that was killed after the checkpoint of step 2, and a run with a policy
a role.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.store import checkpoints
from coding_framework.store.conversations import episodes, run_rollouts
from coding_framework.store.folder import RLFolder, RunFolder, evaluations_in
from coding_framework.store.model_card import card_of
from coding_framework.store.stages import StageManifest
from coding_framework.store.training_log import keep_sft_records, read_sft_records
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.role_phases import read_state, schedule
from coding_framework.training.sft import train_sft
from coding_framework.training.sft_config import SFTConfig
from coding_framework.training.verl.steps import RunSteps

pytestmark = pytest.mark.unit


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    shutil.copytree(Path(__file__).with_name("old_run"), tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_its_finished_stages_are_finished_and_other_settings_are_refused(run: RunFolder) -> None:
    with StageManifest(run.root, {"seed": 0}) as manifest:
        assert list(manifest.stages) == ["model", "eval_base"]
        assert manifest.finished("model").result == {"path": "/models/base"}
    with pytest.raises(UsageError, match="seed was 0"), StageManifest(run.root, {"seed": 1}):
        pass


def test_its_conversations_are_found(run: RunFolder) -> None:
    expected = ["base/t/0", "base/t/1", "000-1", "001-2", "001-3"]
    assert [s.conversation_id for s in episodes(run.root)] == expected
    assert evaluations_in(run.evaluations) == {"base": run.evaluations / "base.jsonl"}
    again = run.evaluations / "base" / "conversations.jsonl"
    again.parent.mkdir(exist_ok=True)
    again.touch()
    assert evaluations_in(run.evaluations) == {"base": again}
    roles = [r.state.conversation_id for r in run_rollouts(run.root / "roles")]
    assert roles == ["role-1"]


def test_its_finished_sft_is_not_done_again(run: RunFolder) -> None:
    stored = json.loads(run.sft.config.read_text())
    config = SFTConfig.model_validate({**stored["config"], "output_dir": str(run.sft.root)})
    stored["config"]["compile_layers"] = False  # a setting that is gone
    run.sft.config.write_text(json.dumps(stored))

    def resolve(name: str) -> Path:
        raise AssertionError("the run was finished")

    assert train_sft(config, [], resolve=resolve).last_loss == 1.0
    records = read_sft_records(run.sft.metrics)
    assert [r["loss"] for r in records.steps] == [2.0, 1.0]
    assert [e.held_out_loss for e in records.epochs] == [1.5]
    assert [r["step"] for r in keep_sft_records(run.sft.metrics, 1).steps] == [1]
    assert len(run.sft.metrics.read_text().splitlines()) == 1


def test_its_rl_goes_on_from_the_checkpoint_with_the_records_of_every_step(run: RunFolder) -> None:
    last = checkpoints.latest_checkpoint(run.rl.checkpoints, world_size=1)
    assert last == run.rl.checkpoint(2)
    checkpoints.prune(run.rl.checkpoints)
    assert not run.rl.checkpoint(3).exists()
    steps = RunSteps(run.rl, None)
    steps.complete(done=2)
    assert [(s.step, s.grad_norm) for s in steps.stored()] == [(1, 0.25), (2, 0.5)]
    assert run.rl.new_attempt().root.name == "002"


def test_its_phases_are_done(run: RunFolder) -> None:
    config = MultiTurnRLConfig.cpu(
        model_path="/models/base", output_dir=str(run.root / "roles"), num_episodes=4,
        phase_steps=2, policy="per_role", lora_rank=4,
    )  # fmt: skip
    planned = schedule(config)
    assert read_state(config, planned).done == planned[:1]


def test_its_weights_have_a_card_made_of_what_lies_beside_them(run: RunFolder) -> None:
    sft = card_of(run.sft.model)
    assert (sft.stage, sft.prompts, sft.base_model) == ("sft", "v1", "the-base")
    assert card_of(run.sft.root / "generator").stage == "sft"
    rl = card_of(run.rl.final_model)
    assert (rl.stage, rl.prompts, rl.base_model) == ("rl", "v2", "the-sft-model")
    assert card_of(run.rl.final_model / "optimizer").prompts == "v2"
    assert card_of(RLFolder(run.root / "elsewhere").final_model) is None
