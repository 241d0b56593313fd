"""Overlong shaping (DAPO, arXiv:2503.14476, eq. 13): answers near the token limit lose a little.

An answer that is cut off at the limit has no kernel, whatever it was about to be: without a slope
before the limit its reward says nothing about length. The penalty is a part of the reward with a
name of its own, so reports show it; it is small enough that a correct kernel stays worth more than
a wrong one in every preset.
"""

from __future__ import annotations

from coding_framework.errors import UsageError
from coding_framework.orchestration.turn import RewardFn
from coding_framework.types import CUDAConversationState, Record, RewardComponents, RewardPart

MOST_OVERLONG_PENALTY = 0.2
"""Below the gap between the worst correct kernel and the best wrong one, at least 0.3 in every
preset."""


class Overlong(Record):
    """Where the penalty begins and ends. Maker: the trainer. Consumer: `OverlongShaping`."""

    max_tokens: int
    """Of an answer; there the penalty is whole."""
    buffer_tokens: int
    """Tokens before it over which the penalty grows from 0."""
    penalty: float = MOST_OVERLONG_PENALTY
    """What is taken off at most."""


class OverlongShaping:
    """A reward with the penalty on top. Pure, as the reward that it wraps."""

    def __init__(self, reward: RewardFn, overlong: Overlong) -> None:
        """Raises UsageError where the buffer is not within the answer."""
        if not 0 < overlong.buffer_tokens < overlong.max_tokens:
            raise UsageError(
                f"buffer_tokens={overlong.buffer_tokens}: choose a number from 1 to "
                f"{overlong.max_tokens - 1}"
            )
        self._reward = reward
        self._overlong = overlong

    def __call__(self, state: CUDAConversationState) -> RewardComponents | None:
        """Reward of the last turn; None where it is masked."""
        paid = self._reward(state)
        length = len(state.turns[-1].generation.response_ids)
        share = overlong_share(length, self._overlong)
        if paid is None or share == 0.0:
            return paid
        part = RewardPart(
            name="overlong",
            value=-self._overlong.penalty * share,
            limit=-self._overlong.penalty,
            why=f"{length} of at most {self._overlong.max_tokens} tokens",
        )
        return paid.model_copy(update={"parts": (*paid.parts, part)})


def overlong_share(length: int, overlong: Overlong) -> float:
    """0 up to the buffer, then in a straight line to 1 at the limit."""
    start = overlong.max_tokens - overlong.buffer_tokens
    return min(max((length - start) / overlong.buffer_tokens, 0.0), 1.0)
