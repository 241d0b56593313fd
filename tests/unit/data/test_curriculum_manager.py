"""The curriculum moves on evidence: simulated learners of known strength."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable

import pytest

from coding_framework.data.curriculum_manager import (
    PRESETS,
    CurriculumManager,
    CurriculumTier,
    Outcome,
    TierCriteria,
    measure_performance,
)
from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError
from coding_framework.store.records import TaskEvidence
from coding_framework.types import Task

pytestmark = pytest.mark.unit

Skill = Callable[[int, int], tuple[float, float, float]]
"""(tier of the task, episode) -> (compile rate, success rate, mean speedup)."""


def _tasks() -> list[Task]:
    base = find_task("relu")
    return [
        base.model_copy(update={"name": f"t{tier}_{i}", "tier": tier})
        for tier in range(4)
        for i in range(10)
    ]


TASKS = _tasks()


def _run(manager: CurriculumManager, skill: Skill, episodes: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    for episode in range(episodes):
        (task,) = manager.sample(1)
        compile_rate, success_rate, speedup = skill(task.tier, episode)
        correct = rng.random() < success_rate
        outcome = Outcome(
            task=task.name,
            compiled=correct or rng.random() < (compile_rate - success_rate) / (1 - success_rate),
            correct=correct,
            speedup=max(0.1, rng.gauss(speedup, 0.5)) if correct else None,
            modelled=True,
        )
        manager.record_outcome(outcome, task_tier=task.tier)


def _fast(tier: int, episode: int) -> tuple[float, float, float]:
    return 0.97, 0.9, 3.5


def _stuck(tier: int, episode: int) -> tuple[float, float, float]:
    return 0.6, 0.3, 1.0


def _slow(tier: int, episode: int) -> tuple[float, float, float]:
    strength = min(0.95, 0.2 + episode / 1500)
    return min(0.98, strength + 0.1), strength, 0.5 + 2.5 * strength


def _regressing(tier: int, episode: int) -> tuple[float, float, float]:
    return _fast(tier, episode) if episode < 800 else (0.3, 0.1, 1.0)


def test_a_fast_learner_reaches_the_last_tier() -> None:
    manager = CurriculumManager(TASKS, "three_tier")
    _run(manager, _fast, 1200)
    assert manager.current_tier.name == "hard"


def test_a_stuck_learner_stays() -> None:
    manager = CurriculumManager(TASKS, "three_tier")
    _run(manager, _stuck, 3000)
    assert manager.current_tier.name == "easy"
    assert {w.decision for w in manager.progression} == {"stay"}


def test_a_slow_learner_advances_once_it_meets_the_criteria_and_not_before() -> None:
    manager = CurriculumManager(TASKS, "three_tier")
    _run(manager, _slow, 2500)
    first = next(w for w in manager.progression if w.decision == "advance")
    assert first.episode > 700
    assert first.metrics.meets(PRESETS["three_tier"][0].criteria)
    assert manager.current_tier.name != "easy"


def test_a_regressing_learner_falls_back() -> None:
    manager = CurriculumManager(TASKS, "three_tier")
    _run(manager, _regressing, 3000)
    assert manager.current_tier.name == "easy"
    assert "fall_back" in {w.decision for w in manager.progression}


def test_one_lucky_streak_does_not_advance() -> None:
    manager = CurriculumManager(TASKS, "three_tier")

    def lucky(tier: int, episode: int) -> tuple[float, float, float]:
        return _fast(tier, episode) if 200 <= episode < 300 else _stuck(tier, episode)

    _run(manager, lucky, 1000)
    assert manager.current_tier.name == "easy"


@pytest.mark.parametrize("preset", ["three_tier", "four_tier"])
def test_advances_by_luck_are_rare(preset: str) -> None:
    """A learner ten points below the criteria, watched for ten windows: at most 5% advance."""
    criteria = PRESETS[preset][0].criteria

    def just_below(tier: int, episode: int) -> tuple[float, float, float]:
        return criteria.min_compile_rate - 0.1, criteria.min_success_rate - 0.1, 2.0

    advanced = 0
    for seed in range(60):
        manager = CurriculumManager(TASKS, preset, seed=seed)
        _run(manager, just_below, 10 * criteria.min_episodes, seed=seed)
        advanced += manager.current_tier != PRESETS[preset][0]
    assert advanced <= 3


def test_earlier_tiers_keep_their_share_of_the_draws() -> None:
    manager = CurriculumManager(TASKS, "three_tier")
    _run(manager, _fast, 400)
    assert manager.current_tier.name == "medium"
    drawn = manager.sample(2000)
    earlier = sum(t.tier == 0 for t in drawn) / len(drawn)
    assert 0.15 < earlier < 0.25
    assert {t.tier for t in drawn} == {0, 1}


def test_draws_favour_tasks_that_are_neither_solved_nor_hopeless() -> None:
    manager = CurriculumManager(TASKS, "three_tier")
    for attempt in range(40):
        for name, correct in (("t0_0", True), ("t0_1", False), ("t0_2", attempt % 2 == 0)):
            outcome = Outcome(task=name, compiled=False, correct=correct)
            manager.record_outcome(outcome, task_tier=0)
    drawn = [t.name for t in manager.sample(3000)]
    assert drawn.count("t0_2") > 2 * drawn.count("t0_0")
    assert drawn.count("t0_2") > 2 * drawn.count("t0_1")
    assert drawn.count("t0_0") > 0


def _drawn(manager: CurriculumManager, n: int = 4000) -> Counter[str]:
    return Counter(task.name for task in manager.sample(n))


def test_informative_draws_open_tasks_and_those_with_speed_left() -> None:
    """The names of the tasks say what is known of them; an unknown one is tried."""
    tasks = [
        task.model_copy(update={"name": name})
        for task, name in zip(_tasks(), ("solved", "hopeless", "open", "slow", "new"), strict=False)
    ]
    manager = CurriculumManager(tasks, "informative", seed=1)
    manager.learn([
        TaskEvidence(task="solved", samples=30, solved=30, best_ms=1.0, median_ms=1.1),
        TaskEvidence(task="hopeless", samples=30, solved=0),
        TaskEvidence(task="open", samples=30, solved=12, best_ms=1.0, median_ms=1.0),
        TaskEvidence(task="slow", samples=30, solved=30, best_ms=1.0, median_ms=1.5),
        TaskEvidence(task="of another run", samples=30, solved=12),
    ])  # fmt: skip
    drawn = _drawn(manager)
    assert min(drawn[name] for name in ("open", "slow", "new")) > 1000
    assert max(drawn[name] for name in ("solved", "hopeless")) < 200
    again = CurriculumManager(tasks, "informative")
    again.load_state_dict(json.loads(json.dumps(manager.state_dict())))
    assert _drawn(again) == _drawn(manager)


def test_what_the_run_sees_of_a_task_outweighs_what_was_known() -> None:
    tasks = [
        task.model_copy(update={"name": name}) for task, name in zip(_tasks(), "ab", strict=False)
    ]
    manager = CurriculumManager(tasks, "informative", seed=1)
    manager.learn([TaskEvidence(task=n, samples=8, solved=4) for n in "ab"])
    for _ in range(60):
        manager.record_outcome(
            Outcome(task="a", compiled=True, correct=True, speedup=1.0), task_tier=tasks[0].tier
        )
    drawn = _drawn(manager)
    assert drawn["a"] < 0.15 * drawn["b"]


def test_the_state_is_restored_exactly() -> None:
    one = CurriculumManager(TASKS, "three_tier", seed=5)
    _run(one, _fast, 333)
    saved = json.loads(json.dumps(one.state_dict()))
    other = CurriculumManager(TASKS, "three_tier", seed=99)
    other.load_state_dict(saved)
    assert other.state_dict() == one.state_dict()
    _run(one, _slow, 300, seed=1)
    _run(other, _slow, 300, seed=1)
    assert other.state_dict() == one.state_dict()


def test_a_checkpoint_of_a_longer_curriculum_is_a_usage_error() -> None:
    one = CurriculumManager(TASKS, "four_tier")
    _run(one, _fast, 1000)
    other = CurriculumManager([t for t in TASKS if t.tier == 0], "four_tier")
    with pytest.raises(UsageError, match="same preset"):
        other.load_state_dict(one.state_dict())


def test_an_unknown_preset_and_an_empty_curriculum_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="three_tier, four_tier"):
        CurriculumManager(TASKS, "two_tier")
    with pytest.raises(UsageError, match="no task"):
        CurriculumManager([], "three_tier")


def test_metrics_say_whether_speedups_were_measured_or_modelled() -> None:
    def outcome(modelled: bool) -> Outcome:
        return Outcome(task="t", compiled=True, correct=True, speedup=2.0, modelled=modelled)

    assert measure_performance([outcome(True)]).basis == "modelled"
    assert measure_performance([outcome(False)]).basis == "measured"
    assert measure_performance([outcome(True), outcome(False)]).basis == "mixed"
    assert measure_performance([]).basis == "none"


def test_tiers_of_ones_own_are_taken() -> None:
    criteria = TierCriteria(min_compile_rate=0.5, min_success_rate=0.5, min_episodes=10)
    tiers = [
        CurriculumTier(name="a", task_tiers=(0, 1), criteria=criteria),
        CurriculumTier(name="b", task_tiers=(2,), criteria=criteria),
    ]
    manager = CurriculumManager(TASKS, tiers)
    _run(manager, _fast, 25)
    assert manager.current_tier.name == "b"
