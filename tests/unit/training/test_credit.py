"""Returns and advantages against groups computed by hand."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.training.credit import (
    KEVIN_DISCOUNT,
    STD_FLOOR,
    conversation_returns,
    discounted_returns,
    group_advantages,
    group_key,
    told_apart,
    turn_rewards,
)
from coding_framework.types import (
    CUDAConversationState,
    Role,
    Status,
)
from support.made_conversations import make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit


def conversation(rewards: list[float | None], end_reason: str) -> CUDAConversationState:
    """A finished conversation with these rewards; None is a turn masked by a fault of ours."""
    verdict = make_verdict(Status.COMPILE_ERROR)
    turns = tuple(
        make_turn(index, None, masked="SandboxError: gone")
        if reward is None
        else make_turn(index, verdict, reward=reward)
        for index, reward in enumerate(rewards)
    )
    return CUDAConversationState(
        conversation_id="c", task=make_task(), turns=turns, end_reason=end_reason
    )


def test_return_is_the_discounted_sum_of_own_and_later_rewards() -> None:
    # 0.2 + 0.9 * (0.5 + 0.9 * 1.0) = 1.46, 0.5 + 0.9 * 1.0 = 1.4, 1.0
    assert discounted_returns([0.2, 0.5, 1.0], 0.9) == pytest.approx((1.46, 1.4, 1.0))


def test_kevin_discount_is_four_tenths() -> None:
    # 0 + 0.4 * (0.3 + 0.4 * 1.3) = 0.328, 0.3 + 0.4 * 1.3 = 0.82, 1.3
    assert discounted_returns([0.0, 0.3, 1.3], KEVIN_DISCOUNT) == pytest.approx((0.328, 0.82, 1.3))


def test_discount_zero_pays_each_turn_its_own_reward() -> None:
    assert discounted_returns([0.2, None, 1.0], 0.0) == (0.2, None, 1.0)


def test_a_return_that_needs_a_masked_reward_is_unknown_not_smaller() -> None:
    assert discounted_returns([0.2, None, 1.0], 0.9) == (None, None, 1.0)


def test_a_masked_first_turn_leaves_later_returns_known() -> None:
    assert discounted_returns([None, 0.5, 1.0], 0.5) == pytest.approx((None, 1.0, 1.0))


def test_no_turns_no_returns() -> None:
    assert discounted_returns([], 0.9) == ()


def test_ending_at_the_goal_is_worth_more_than_two_mediocre_turns() -> None:
    stopped = discounted_returns([0.85], 0.9, horizon=2)
    went_on = discounted_returns([0.5, 0.8], 0.9)
    assert stopped == pytest.approx((0.85 + 0.9 * 0.85,))
    assert stopped[0] > went_on[0]  # type: ignore[operator]


def test_horizon_below_the_turns_taken_is_an_error() -> None:
    with pytest.raises(ValueError, match="horizon=1"):
        discounted_returns([0.1, 0.2], 0.9, horizon=1)


@pytest.mark.parametrize("discount", [-0.1, 1.1])
def test_discount_outside_the_unit_interval_is_an_error(discount: float) -> None:
    with pytest.raises(ValueError, match="choose a number in"):
        discounted_returns([0.1], discount)


def test_rewards_of_a_state_are_none_where_masked() -> None:
    assert turn_rewards(conversation([0.3, None], "error")) == (0.3, None)


def test_conversation_that_reached_its_goal_holds_its_last_reward() -> None:
    reached = conversation_returns(conversation([0.9], "threshold"), 0.5, max_turns=3)
    gave_up = conversation_returns(conversation([0.9], "no_progress"), 0.5, max_turns=3)
    assert reached == pytest.approx((0.9 * 1.75,))
    assert gave_up == pytest.approx((0.9,))


def test_frozen_roles_turn_is_not_learnt_from_and_pays_the_turns_before_it() -> None:
    taken = conversation([0.2, 0.6], "max_turns")
    assert conversation_returns(taken, 0.5, 2, {Role.GENERATOR}) == (pytest.approx(0.5), None)
    assert conversation_returns(taken, 0.5, 2, {Role.OPTIMIZER}) == (None, pytest.approx(0.6))


def test_conversation_cut_off_by_a_fault_before_a_turn_has_unknown_returns() -> None:
    # The policy failed before turn 2: what it would have earned is unknown.
    cut = conversation([0.4], "error")
    assert conversation_returns(cut, 0.9, max_turns=2) == (None,)
    assert conversation_returns(cut, 0.0, max_turns=2) == (0.4,)


def test_advantages_of_a_golden_group() -> None:
    # mean 2, deviations -1 0 1, variance with n-1: 1, std 1
    by_std = group_advantages([1.0, 2.0, 3.0], ["a", "a", "a"])
    assert by_std == pytest.approx((-1.0, 0.0, 1.0), abs=1e-12)
    assert group_advantages([1.0, 2.0, 4.5], ["a"] * 3, scale="none") == pytest.approx(
        (-1.5, -0.5, 2.0)
    )


def test_returns_that_hardly_differ_hardly_count() -> None:
    # Three correct kernels, a percent of reward apart: std 0.01, a fifth of the floor.
    near = group_advantages([0.81, 0.82, 0.83], ["a"] * 3)
    assert near == pytest.approx((-0.01 / STD_FLOOR, 0.0, 0.01 / STD_FLOOR))
    wide = group_advantages([0.1, 0.8], ["a", "a"])  # wrong and right: std 0.49
    assert wide == pytest.approx((-math.sqrt(0.5), math.sqrt(0.5)))


def test_leave_one_out_compares_with_the_others_alone() -> None:
    left_out = group_advantages([1.0, 2.0, 6.0], ["a"] * 3, scale="none", leave_one_out=True)
    assert left_out == pytest.approx((1.0 - 4.0, 2.0 - 3.5, 6.0 - 1.5))


def test_what_noise_moves_is_no_advantage() -> None:
    noise, groups = [0.810, 0.815, 0.812, 0.3, 0.8], ["a", "a", "a", "b", "b"]
    found = group_advantages(noise, groups, least_spread=0.01)
    assert found[:3] == (0.0, 0.0, 0.0)
    assert found[3:] == group_advantages([0.3, 0.8], ["b", "b"])
    assert told_apart([0.3, 0.31], 0.005)
    for equal, least in (([0.3, 0.31], 0.05), ([0.3, 0.3], 0.0), ([0.3], 0.0)):
        assert not told_apart(equal, least)


def test_groups_do_not_see_each_other() -> None:
    turn_1, turn_2 = group_key(Role.GENERATOR, 0), group_key(Role.OPTIMIZER, 1)
    both = group_advantages([0.0, 1.0, 10.0, 20.0], [turn_1, turn_1, turn_2, turn_2])
    half = math.sqrt(0.5)  # deviations -0.5, 0.5: std sqrt(0.5); scale-free, so alike in both
    assert both == pytest.approx((-half, half, -half, half), abs=1e-5)


def test_unknown_returns_are_left_out_of_the_baseline() -> None:
    with_unknown = group_advantages([1.0, None, 3.0, 5.0], ["a"] * 4, scale="none")
    assert with_unknown == pytest.approx((-2.0, 0.0, 0.0, 2.0))


def test_a_policy_gains_nothing_by_what_the_judge_does_not_support() -> None:
    """Whoever brings about an `unsupported` verdict gets no push, for that turn nor for those
    before it, and moves nobody else's."""
    escaped = discounted_returns((0.1, None), 0.9)
    assert group_advantages((*escaped[:1], 1.0, 0.0), ("g",) * 3) == (
        0.0,
        *group_advantages((1.0, 0.0), ("g",) * 2),
    )


def test_equal_returns_and_single_rows_have_no_advantage() -> None:
    assert group_advantages([0.7, 0.7, 0.3], ["a", "a", "b"]) == (0.0, 0.0, 0.0)


def test_group_keys_have_no_underscore_because_verl_splits_keys_there() -> None:
    keys = {group_key(role, turn) for role in Role for turn in range(3)}
    assert len(keys) == 3 * len(Role)
    assert not any("_" in key for key in keys)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="2 returns for 1 groups"):
        group_advantages([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match="row 1"):
        group_advantages([1.0, math.nan], ["a", "a"])


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.floats(-10, 10)), st.sampled_from(["a", "b", "c"])),
        max_size=20,
    ),
    st.sampled_from(["std", "none"]),
)
def test_known_rows_of_a_group_sum_to_zero(
    rows: list[tuple[float | None, str]], scale: str
) -> None:
    values, groups = [r[0] for r in rows], [r[1] for r in rows]
    advantages = group_advantages(values, groups, scale=scale)  # type: ignore[arg-type]
    for group in set(groups):
        total = sum(a for a, g in zip(advantages, groups, strict=True) if g == group)
        assert total == pytest.approx(0.0, abs=1e-6)
    assert all(a == 0.0 for a, v in zip(advantages, values, strict=True) if v is None)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8), st.floats(0, 1))
def test_returns_obey_the_recursion(rewards: list[float], discount: float) -> None:
    returns = discounted_returns(rewards, discount)
    for index, value in enumerate(returns):
        later = returns[index + 1] if index + 1 < len(returns) else 0.0
        assert value == pytest.approx(rewards[index] + discount * (later or 0.0), abs=1e-9)


def test_import_needs_neither_numpy_nor_torch() -> None:
    code = (
        "import sys, coding_framework.training.credit;"
        "print([m for m in ('numpy', 'torch', 'verl', 'ray') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
