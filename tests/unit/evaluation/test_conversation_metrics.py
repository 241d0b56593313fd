"""What turns contribute: each number from conversations in which it is known."""

from __future__ import annotations

import pytest

from coding_framework.evaluation.conversation_metrics import conversation_metrics, turns_table
from coding_framework.types import CompileSummary, Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit

WRONG = make_verdict(Status.WRONG_OUTPUT)
BROKEN = make_verdict(Status.COMPILE_ERROR)


def right(speedup: float):
    return make_verdict(Status.CORRECT, speedup)


REPAIRED = make_state(make_turn(0, WRONG, "a"), make_turn(1, right(1.0), "b"), name="1")
FASTER = make_state(make_turn(0, right(1.0), "c"), make_turn(1, right(2.0), "d"), name="2")
STUCK = make_state(make_turn(0, WRONG, "e"), make_turn(1, WRONG, "e"), name="3")
EMPTY = make_state(make_turn(0, BROKEN, None), make_turn(1, WRONG, "a"), name="4")
MASKED = make_state(make_turn(0, None, "x", masked="DeviceError: gone"), name="5")
ALL = (REPAIRED, FASTER, STUCK, EMPTY, MASKED)


def test_repairs_are_counted_over_the_turns_that_followed_a_failing_kernel():
    fixed = conversation_metrics(ALL).fixed
    assert (fixed.count, fixed.n) == (1, 2)  # REPAIRED and STUCK; EMPTY had no kernel to repair


def test_gains_are_counted_over_the_turns_that_had_a_correct_kernel_to_improve():
    improved = conversation_metrics(ALL).improved
    assert (improved.count, improved.n) == (1, 1)


def test_turns_without_code_or_with_old_code_are_wasted():
    wasted = conversation_metrics(ALL).wasted
    assert (wasted.count, wasted.n) == (2, 8)


def test_passed_by_never_falls_and_counts_conversations_that_ended_early():
    early = make_state(make_turn(0, right(1.0), "z"), name="6")
    rows = conversation_metrics((*ALL, early)).by_turn
    assert [(r.passed_by.count, r.passed_by.n) for r in rows] == [(2, 5), (3, 5)]
    assert [r.turns for r in rows] == [5, 4]


def test_the_gain_is_the_mean_rise_of_the_reward_over_the_turn_before():
    state = make_state(make_turn(0, WRONG, "a"), make_turn(1, right(2.0), "b"))
    (_, second) = conversation_metrics([state]).by_turn
    rewards = [t.reward.total for t in state.turns]
    assert second.gain == pytest.approx(rewards[1] - rewards[0])


def test_diversity_counts_what_differs_of_a_task_by_text_and_by_device_code():
    same = WRONG.model_copy(update={"compile": CompileSummary(ptx_sha256="p")})
    states = [make_state(make_turn(0, same, code), name=code) for code in ("a", "b", "a")]
    metrics = conversation_metrics(states)
    assert (metrics.distinct_code.count, metrics.distinct_code.n) == (2, 3)
    assert (metrics.distinct_device_code.count, metrics.distinct_device_code.n) == (1, 3)


def test_masked_turns_are_counted_and_left_out_of_rates():
    metrics = conversation_metrics(ALL)
    assert metrics.masked_turns == 1
    assert metrics.by_turn[0].turns == 4
    assert metrics.end_reasons == {"max_turns": 5}


def test_no_conversations_give_no_turns():
    metrics = conversation_metrics([])
    assert metrics.by_turn == ()
    assert turns_table(metrics, "none").row_count == 0
