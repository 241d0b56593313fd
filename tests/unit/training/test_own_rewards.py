"""A reward of the user's own trains, or is refused before the first step; never a quiet 0."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from coding_framework.errors import RewardError, UsageError
from coding_framework.orchestration.turn import rewarded
from coding_framework.training import reward_trial
from coding_framework.training.credit import turn_rewards
from coding_framework.training.handed_over import (
    HandedOver,
    packed,
    read_handed_over,
    write_handed_over,
)
from coding_framework.training.objective import objective
from coding_framework.training.reward_functions.cuda_performance_reward import CUDAPerformanceReward
from coding_framework.training.reward_functions.custom import CheckedReward, checked, reward_at
from coding_framework.training.reward_functions.presets import WEIGHTED
from coding_framework.training.reward_trial import conversations, try_reward
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.steps import _is_fault
from coding_framework.types import Role
from support.made_conversations import make_task

pytestmark = pytest.mark.unit

TASK = make_task()
RIGHT = conversations(TASK)["correct"]
CONFIG = MultiTurnRLConfig.cpu(model_path="m", compute_dtype="float32")


def raises(_: Any) -> float:
    raise KeyError("speed")


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (raises, "the reward raises raised KeyError: 'speed'"),
        (lambda _: math.nan, "gave nan"),
        (lambda _: math.inf, "gave inf"),
        (lambda _: 1e30, r"gave 1e\+30: it has to give a finite number of at most 1e\+06"),
        (lambda _: (0.5, 0.5), "gave a tuple"),
        (lambda _: None, "gave None"),
        (lambda _: "0.5", "gave a str"),
        (lambda: 0.5, "raised TypeError"),
    ],
)
def test_what_cannot_be_learnt_from_masks_the_turn_and_counts(reward: Any, said: str) -> None:
    with pytest.raises(RewardError, match=said):
        checked(reward)(RIGHT)
    before = RIGHT.model_copy(update={"turns": RIGHT.turns[:1]})
    turn = rewarded(before, RIGHT.turns[1], checked(reward))
    assert turn.reward is None
    assert turn.masked is not None
    assert _is_fault(turn)
    assert turn_rewards(RIGHT.model_copy(update={"turns": (turn,)})) == (None,)


@pytest.mark.parametrize(
    ("reward", "paid"),
    [
        (lambda state: len(state.turns) / 4, 0.5),
        (lambda state: state.turns[-1].verdict.correct, 1.0),
        (lambda state: CUDAPerformanceReward("correct")(state), 1.0),
    ],
)
def test_numbers_and_components_are_paid_as_they_are_given(reward: Any, paid: float) -> None:
    assert checked(reward)(RIGHT).total == paid
    assert isinstance(checked(reward), CheckedReward)


def test_a_preset_with_other_numbers_is_what_trains() -> None:
    heavy = WEIGHTED.model_copy(update={"performance": 0.9})
    assert objective(CONFIG, reward=CUDAPerformanceReward(heavy)).preset == heavy
    assert objective(CONFIG, reward=CUDAPerformanceReward("kevin")).preset == "kevin"
    changed = CONFIG.model_copy(update={"role_rewards": {Role.OPTIMIZER: {"performance": 0.1}}})
    assert objective(changed, reward=CUDAPerformanceReward(heavy)).preset == heavy


def test_a_lambda_with_what_it_closes_over_travels_to_another_process(tmp_path: Path) -> None:
    weight = 0.25
    found = objective(CONFIG, reward=lambda state: weight * len(state.turns))
    assert found.objects is not None
    write_handed_over(found.objects, tmp_path / "objects")
    reward = read_handed_over(tmp_path / "objects").reward
    assert reward is not None
    assert reward(RIGHT) == 0.5


@pytest.mark.parametrize(
    ("reward", "changes", "said"),
    [
        (threading.Lock(), {}, "the reward is a lock: give a function"),
        (threading.Lock().acquire, {}, "reward cannot be handed to the workers"),
        (lambda _: 1.0, {"reward": "a:b"}, "names a:b: leave one out"),
        (lambda _: 1.0, {"role_rewards": {"optimizer": {"performance": 1.0}}}, "is none"),
        (CUDAPerformanceReward("kevin"), {"role_rewards": {"optimizer": {"nope": 1.0}}}, "nope"),
    ],
)
def test_what_cannot_train_is_refused_when_it_is_handed_over(
    reward: Any, changes: dict[str, object], said: str
) -> None:
    config = MultiTurnRLConfig.model_validate({**CONFIG.model_dump(), **changes})
    with pytest.raises(UsageError, match=said):
        objective(config, reward=reward)


def test_a_path_names_a_reward_a_class_or_a_function_that_makes_one(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text(
        "def plain(state):\n    return 0.5\n"
        "class Own:\n    def __call__(self, state):\n        return 0.25\n"
        "def make():\n    return plain\n"
        "NUMBER = 3\n"
        "def makes_number():\n    return 3\n"
        "class Needs:\n    def __init__(self, it): ...\n"
    )
    paid = {name: reward_at(f"{file}:{name}")(RIGHT) for name in ("plain", "Own", "make")}
    assert paid == {"plain": 0.5, "Own": 0.25, "make": 0.5}
    for name, said in (
        ("NUMBER", "is no reward"),
        ("makes_number", "makes a int"),
        ("Needs", "it"),
    ):
        with pytest.raises(UsageError, match=said):
            reward_at(f"{file}:{name}")


def test_a_reward_is_tried_in_a_process_of_its_own_before_the_run(tmp_path: Path) -> None:
    """What only answers for a correct kernel would mask every other turn."""
    file = tmp_path / "rewards.py"
    file.write_text(
        "print('a word of the user')\n"
        "def good(state):\n    return len(state.turns)\n"
        "def forgets(state):\n    return state.turns[-1].verdict.timing.kernel_ms\n"
    )

    def ask(name: str) -> object:
        return try_reward(TASK, path=f"{file}:{name}", handed=None, environment=os.environ)

    assert ask("good") == {"does not compile": 1.0, "wrong output": 1.0, "correct": 2.0}
    with pytest.raises(UsageError, match=r"forgets raised AttributeError: .*kernel_ms"):
        ask("forgets")


def test_a_slow_reward_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_trial, "MOST_S", 0.01)
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ndef slow(state):\n    time.sleep(0.02)\n    return 1\n")
    question = {"path": f"{slow}:slow", "handed": "", "task": TASK.model_dump_json()}
    with pytest.raises(RewardError, match=r"took \d+\.\d s for one turn"):
        reward_trial._answer(question)


def test_a_class_that_a_worker_cannot_import_is_said(tmp_path: Path) -> None:
    """Its module is there when it is pickled, and gone where it is read."""
    data = packed(HandedOver(reward=len))
    write_handed_over(data.replace(b"builtins", b"bulitins"), tmp_path / "objects")
    with pytest.raises(UsageError, match="reward that was handed over cannot be made in a worker"):
        read_handed_over(tmp_path / "objects")
