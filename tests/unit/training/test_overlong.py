"""Overlong shaping: DAPO's slope, and the order of kernels that it must not change."""

from __future__ import annotations

import pytest

from coding_framework.errors import UsageError
from coding_framework.training.reward_functions.cuda_performance_reward import CUDAPerformanceReward
from coding_framework.training.reward_functions.overlong import (
    MOST_OVERLONG_PENALTY,
    Overlong,
    OverlongShaping,
    overlong_share,
)
from coding_framework.training.reward_functions.presets import PRESETS
from coding_framework.types import CUDAConversationState, Generation, Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit


def state_of(status: Status, *, tokens: int, speedup: float = 2.0) -> CUDAConversationState:
    turn = make_turn(0, make_verdict(status, speedup))
    generation = Generation(text="code", response_ids=(1,) * tokens)
    return make_state(turn.model_copy(update={"generation": generation}))


OVERLONG = Overlong(max_tokens=100, buffer_tokens=20, penalty=0.2)


@pytest.mark.parametrize(
    ("length", "share"), [(0, 0.0), (80, 0.0), (85, 0.25), (90, 0.5), (100, 1.0), (120, 1.0)]
)
def test_the_penalty_grows_in_a_straight_line_to_the_limit(length: int, share: float) -> None:
    assert overlong_share(length, OVERLONG) == pytest.approx(share)


def test_it_is_a_named_part_that_says_why() -> None:
    state = state_of(Status.CORRECT, tokens=90)
    plain, shaped = (
        CUDAPerformanceReward()(state),
        OverlongShaping(CUDAPerformanceReward(), OVERLONG)(state),
    )
    assert plain is not None
    assert shaped is not None
    assert shaped.total == pytest.approx(plain.total - 0.1)
    assert shaped.parts[-1].name == "overlong"
    assert shaped.parts[-1].why == "90 of at most 100 tokens"
    short = state_of(Status.CORRECT, tokens=10)
    assert OverlongShaping(CUDAPerformanceReward(), OVERLONG)(short) == plain


def test_a_masked_turn_stays_without_reward() -> None:
    state = state_of(Status.CORRECT, tokens=100)
    masked = state.turns[-1].model_copy(update={"masked": "ours"})
    assert (
        OverlongShaping(CUDAPerformanceReward(), OVERLONG)(
            state.model_copy(update={"turns": (masked,)})
        )
        is None
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_correct_kernel_of_full_length_is_worth_more_than_a_short_wrong_one(preset: str) -> None:
    whole = OVERLONG.model_copy(update={"penalty": MOST_OVERLONG_PENALTY})
    reward = OverlongShaping(CUDAPerformanceReward(preset), whole)
    slow = reward(state_of(Status.CORRECT, tokens=100, speedup=0.01))
    wrong = reward(state_of(Status.WRONG_OUTPUT, tokens=1))
    assert slow is not None
    assert wrong is not None
    assert slow.total > wrong.total


def test_a_buffer_outside_the_answer_is_refused() -> None:
    with pytest.raises(UsageError, match="from 1 to 99"):
        OverlongShaping(CUDAPerformanceReward(), OVERLONG.model_copy(update={"buffer_tokens": 100}))
