"""One step off-policy: the rollout answers while the policy learns, and stops for its weights."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coding_framework.store.conversations import read_rollouts
from coding_framework.store.folder import learnt_file
from coding_framework.training.verl import trainer as module
from coding_framework.training.verl.trainer import InStep, OneBehind

pytestmark = pytest.mark.unit


class Rollout:
    """verl's manager of rollout servers, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.told.append(" ".join(map(str, (name, *arguments))))


def trainer_of(cls: type) -> Any:
    made = cls.__new__(cls)
    made.checkpoint_manager, made.timing_raw = Rollout(), {}
    made.curr_step_profile, made.global_steps = False, 7
    return made


def test_the_rollout_stops_for_new_weights_alone() -> None:
    trainer = trainer_of(OneBehind)
    trainer.on_sample_end()
    assert trainer.checkpoint_manager.told == []
    trainer.on_step_end()
    assert trainer.checkpoint_manager.told == [
        "abort_replicas",
        "update_weights 7",
        "resume_generation_replicas",
    ]
    assert trainer.timing_raw["update_weights"] >= 0


def test_in_step_it_sleeps_while_the_policy_learns() -> None:
    trainer = trainer_of(InStep)
    trainer.on_sample_end()
    assert "sleep_replicas" in trainer.checkpoint_manager.told


@pytest.mark.parametrize("one_behind", [True, False])
def test_what_a_step_learns_from_is_noted_where_it_is_not_what_it_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one_behind: bool
) -> None:
    as_it_is = lambda trainer, batch, metrics: batch  # noqa: E731
    monkeypatch.setattr(module.PPOTrainer, "_balance_batch", as_it_is)
    monkeypatch.setattr(
        module, "read_spec", lambda path: SimpleNamespace(rollouts_dir=str(tmp_path))
    )
    monkeypatch.setenv(module.SPEC_VARIABLE, "spec.json")
    trainer = trainer_of(OneBehind if one_behind else InStep)
    batch: Any = SimpleNamespace(keys=["3-b_generator.0_0_0", "3-b_generator.0_1_0", "2-a_g.0_0_0"])
    assert trainer._balance_batch(batch, {}) is batch
    assert learnt_file(tmp_path, 7).exists() == one_behind
    if one_behind:
        assert learnt_file(tmp_path, 7).read_text().split() == ["[", '"2-a",', '"3-b"', "]"]
        assert list(read_rollouts(tmp_path, 7)) == []  # nothing is there yet
