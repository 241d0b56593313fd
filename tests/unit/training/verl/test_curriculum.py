"""RL's curriculum: what it draws follows from the steps before, also after a checkpoint."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from coding_framework.errors import TrainingError
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.store.checkpoints import CURRICULUM
from coding_framework.store.conversations import append_rollout
from coding_framework.store.records import Rollout
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.episode_spec import EpisodeSpec
from coding_framework.types import Status, Task
from support.made_conversations import make_state, make_task, make_turn, make_verdict

curriculum = pytest.importorskip("coding_framework.training.verl.curriculum")

pytestmark = pytest.mark.unit

TASKS = [make_task(f"t{i}").model_copy(update={"name": f"t{i}", "tier": i // 4}) for i in range(12)]


def write_steps(folder: Path, steps: range, shuffle: int) -> None:
    """120 conversations a step, in an order of ending that `shuffle` decides."""
    for step in steps:
        ended = [rollout(step, number) for number in range(120)]
        random.Random(shuffle * 100 + step).shuffle(ended)
        for each in ended:
            append_rollout(folder, each)


def rollout(step: int, number: int) -> Rollout:
    task: Task = TASKS[number % 4]
    status = Status.CORRECT if (number * 7 + step) % 10 < 9 else Status.COMPILE_ERROR
    state = make_state(make_turn(0, make_verdict(status, 2.0)))
    return Rollout(
        step=step, group=f"g{number}", session=number % 4, prompt=number // 4,
        state=state.model_copy(update={"task": task}), returns=(0.5,),
    )  # fmt: skip


def made(folder: Path, state_file: Path | None = None) -> curriculum.Curriculum:
    spec = EpisodeSpec(
        config=MultiTurnRLConfig.cpu(curriculum="three_tier", seed=3),
        judge="none",
        conversation=ConversationConfig(),
        rollouts_dir=str(folder),
        curriculum_state=str(state_file) if state_file is not None else None,
    )
    return curriculum.Curriculum(TASKS, spec)


def play(found: curriculum.Curriculum, steps: range) -> list[list[str]]:
    """What is drawn for each step."""
    drawn = []
    for step in steps:
        found.advance(step - 1)
        drawn.append([found.draw() for _ in range(20)])
    return drawn


def test_a_resumed_curriculum_draws_what_the_uninterrupted_one_draws(tmp_path: Path) -> None:
    whole, first, second = (tmp_path / name for name in ("whole", "first", "second"))
    write_steps(whole, range(1, 6), shuffle=1)
    uninterrupted = made(whole)
    expected = play(uninterrupted, range(1, 6))
    assert uninterrupted.manager.current_tier.name == "medium", "it moved on evidence"

    write_steps(first, range(1, 4), shuffle=2)  # ended in another order; killed after step 3
    killed = made(first)
    assert play(killed, range(1, 3)) == expected[:2]
    killed.advance(2)
    killed.save(tmp_path)
    play(killed, range(3, 4))  # drawn after the checkpoint, and lost
    write_steps(second, range(3, 6), shuffle=3)
    resumed = made(second, tmp_path / CURRICULUM)
    assert play(resumed, range(3, 6)) == expected[2:]
    uninterrupted.advance(5)
    resumed.advance(5)
    assert resumed.manager.state_dict() == uninterrupted.manager.state_dict()


def test_a_step_is_recorded_once(tmp_path: Path) -> None:
    write_steps(tmp_path, range(1, 2), shuffle=1)
    found = made(tmp_path)
    found.advance(1)
    found.advance(1)
    assert found.manager.state_dict()["episodes"] == 120


def test_a_state_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / CURRICULUM).write_text(json.dumps({"step": 1}))
    with pytest.raises(TrainingError, match="is no state of a curriculum"):
        made(tmp_path, tmp_path / CURRICULUM)
