"""What feedback_value.py makes of conversations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.made_conversations import make_state, make_turn, make_verdict

sys.path.append(str(Path(__file__).parent))
import feedback_value

from coding_framework.types import CUDAConversationState, Status

pytestmark = pytest.mark.unit


def test_arms_are_compared_on_the_conversations_that_both_have() -> None:
    turn = make_turn(0, make_verdict(Status.CORRECT))

    def named(arm: str, task: str) -> CUDAConversationState:
        return make_state(turn, task=task, name=f"{arm}/{task}/0")

    states = {
        "feedback": [named("feedback", "a")],
        "resampling": [named("resampling", "a"), named("resampling", "b")],
    }
    both = feedback_value.in_both(states)
    assert {arm: [s.conversation_id for s in kept] for arm, kept in both.items()} == {
        "feedback": ["feedback/a/0"],
        "resampling": ["resampling/a/0"],
    }
