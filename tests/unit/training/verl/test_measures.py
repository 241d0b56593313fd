"""A step's figures, from conversations made by hand."""

from __future__ import annotations

import pytest

from coding_framework.store.records import Measures, Rollout, TierRates, VerdictTime
from coding_framework.training.verl.steps import measure
from coding_framework.training.verl.steps import rows_with_advantage as rows
from coding_framework.types import CUDAConversationState, Finding, Generation, Status, Verdict
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit


def rollout(
    session: int, state: CUDAConversationState, returns: tuple[float | None, ...], **more: object
) -> Rollout:
    return Rollout(step=1, group="g", session=session, state=state, returns=returns, **more)


def cheat() -> Verdict:
    evidence = Finding(rule="r", severity="high", line=None, message="m", basis="run")
    return make_verdict(Status.WRONG_OUTPUT).model_copy(
        update={"status": Status.CHEATING, "cheats": (evidence,), "tests": ()}
    )


def states() -> list[Rollout]:
    fast = make_state(
        make_turn(0, make_verdict(Status.CORRECT, 1.0)),
        make_turn(1, make_verdict(Status.CORRECT, 4.0)),
    )
    cheating = make_state(make_turn(0, make_verdict(Status.COMPILE_ERROR)), make_turn(1, cheat()))
    lost = make_state(make_turn(0, None, masked="ours"))
    long = Generation(text="x", response_ids=(1,) * 8, finish_reason="length")
    turn = make_turn(0, make_verdict(Status.WRONG_OUTPUT)).model_copy(update={"generation": long})
    hard = make_state(turn)
    tier3 = hard.task.model_copy(update={"tier": 3})
    times = (VerdictTime(wall_s=3.0, judging_s=1.0), VerdictTime(wall_s=0.5, judging_s=1.0))
    return [
        rollout(0, fast, (1.5, 0.8), verdict_times=times),
        rollout(1, cheating, (1.5, -0.5)),
        rollout(2, lost, (None,)),
        rollout(3, hard.model_copy(update={"task": tier3}), (1.5,)),
    ]


def test_rates_by_tier_speedups_and_cheats() -> None:
    found = measure(states())
    assert found.tiers == {
        "0": TierRates(turns=4, compile_rate=0.75, correct_rate=0.5),
        "3": TierRates(turns=1, compile_rate=1.0, correct_rate=0.0),
    }
    assert found.speedup == {"p10": 1.0, "p50": 1.0, "p90": 4.0}
    assert (found.cheats, found.rejected) == (1, 0)
    assert found.statuses["correct"] == 2


def test_groups_without_advantage_are_those_of_equal_returns() -> None:
    """Turn 0: three equal known returns; turn 1: two that differ."""
    found = measure(states())
    assert (found.groups, found.groups_without_advantage) == (2, 1)
    assert rows(states()) == 2


def test_parts_of_the_reward_are_means_over_rewarded_turns() -> None:
    found = measure(states())
    paid = [t.reward for r in states() for t in r.state.turns if t.reward is not None]
    assert len(paid) == 5
    assert found.reward_parts["cheating"] == pytest.approx(-0.5 / 5)
    assert found.reward_parts["correctness"] == pytest.approx(2 * 0.3 / 5)
    assert sum(found.reward_parts.values()) == pytest.approx(sum(p.total for p in paid) / 5)


def test_lengths_turns_and_the_queue_of_verdicts() -> None:
    found = measure(states())
    assert (found.response_tokens_max, found.response_tokens_mean) == (8, pytest.approx(8 / 6))
    assert found.cut_share == pytest.approx(1 / 6)
    assert found.turns_mean == pytest.approx(6 / 4)
    assert found.verdict_s == {"p50": 0.5, "p95": 3.0}
    assert found.verdict_wait_s == {"p50": 0.0, "p95": 2.0}


def test_nothing_gives_nothing() -> None:
    assert measure([]) == Measures()
