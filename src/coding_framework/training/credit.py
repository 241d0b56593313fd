"""Credit assignment: the only place that computes returns and advantages.

Pure functions on plain numbers. The verl estimator, the agent loop and the tests call these; none
of them has a formula of its own. Importing this module imports neither numpy nor torch.

Returns (multi-turn, after Kevin, arXiv:2507.11948, section 3.2: each turn is one training row and
is paid the discounted sum of its own and the later rewards)::

    G_t = sum_{k=t}^{T-1} discount^(k-t) * r_k

Advantages (GRPO, arXiv:2402.03300, eq. in section 4.1.2; group = same task, role and turn, over the
conversations that were sampled from one prompt)::

    A_i = (G_i - mean(G)) / max(std(G), 0.05)      scale="std"   (std with n-1, as verl's)
    A_i =  G_i - mean(G)                           scale="none"  (Dr. GRPO, arXiv:2503.20783)
    A_i =  G_i - mean(G without G_i)               leave_one_out (RLOO, arXiv:2402.14740)

A group's mean holds the row itself, which shortens its advantage by (n - 1) / n: by half in a group
of two. Leave-one-out has no such bias; it is the deviation from the mean, times n / (n - 1).

The least divisor is ours. Kernels that are all correct and equally fast still differ by a percent
of reward (timing, a register more); divided by their own spread such differences would push as hard
as right against wrong.

Unknown is not zero. A masked turn (our fault, or a gap of the judge) has no reward; a return that
would need it is unknown (None), is left out of its group's baseline and gets advantage 0 with a
loss mask of 0. Scoring it 0 would teach the policy that our outages are its mistakes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from typing import Literal

from coding_framework.types import CUDAConversationState, Role

DEFAULT_DISCOUNT = 0.9
KEVIN_DISCOUNT = 0.4
"""The discount Kevin found best for refinement of kernels over turns."""
STD_FLOOR = 0.05
"""Returns closer together than this are told apart in proportion, not blown up."""
Scale = Literal["std", "none"]


def discounted_returns(
    rewards: Sequence[float | None],
    discount: float = DEFAULT_DISCOUNT,
    *,
    horizon: int | None = None,
) -> tuple[float | None, ...]:
    """Return of each turn from the rewards of all turns.

    Args:
        rewards: One number a turn; None where the turn is masked.
        discount: In [0, 1]. 0 pays each turn its own reward only.
        horizon: Number of turns the conversation was allowed, given only where it ended early
            *because it had reached its goal*. The last reward is then held for the turns that were
            not needed: otherwise two mediocre turns would be paid more than one good one.

    Returns:
        As many values as rewards; None where the return is unknown.

    Raises:
        ValueError: where the discount lies outside [0, 1] or the horizon is below the turn count.
    """
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount={discount}: choose a number in [0, 1]")
    if horizon is not None and horizon < len(rewards):
        raise ValueError(f"horizon={horizon} is less than the {len(rewards)} turns that were taken")
    held = (horizon - len(rewards)) if horizon is not None and rewards else 0
    padded = [*rewards, *([rewards[-1]] * held if held else [])]
    returns: list[float | None] = []
    tail: float | None = 0.0
    for reward in reversed(padded):
        tail = _discounted_sum(reward, tail, discount)
        returns.append(tail)
    return tuple(reversed(returns))[: len(rewards)]


def _discounted_sum(reward: float | None, tail: float | None, discount: float) -> float | None:
    if reward is None:
        return None
    if discount == 0.0:
        return reward
    return None if tail is None else reward + discount * tail


def turn_rewards(state: CUDAConversationState) -> tuple[float | None, ...]:
    """Total reward of each turn; None where the turn is masked or was not rewarded."""
    return tuple(
        turn.reward.total if turn.masked is None and turn.reward is not None else None
        for turn in state.turns
    )


def conversation_returns(
    state: CUDAConversationState,
    discount: float,
    max_turns: int,
    learning: Collection[Role] = frozenset(Role),
) -> tuple[float | None, ...]:
    """Return of each turn of a finished conversation; None where it must not be learnt from: an
    unknown return, or a turn of a role that is not `learning`, whose reward still counts in the
    returns of the turns before it.

    One that a fault of ours cut off before a turn (the policy's server failed) lacks the rewards
    that it would have earned: they are unknown, as a masked turn's are.
    """
    rewards = turn_rewards(state)
    taken = len(rewards)
    if state.end_reason == "error" and taken < max_turns:
        rewards = (*rewards, None)
    reached_goal = state.end_reason == "threshold"
    horizon = max(max_turns, taken) if reached_goal else None
    returns = discounted_returns(rewards, discount, horizon=horizon)[:taken]
    return tuple(
        value if turn.role in learning else None
        for turn, value in zip(state.turns, returns, strict=True)
    )


def group_key(role: Role, turn: int) -> str:
    """What distinguishes the groups of one prompt: (role, turn), as "generator.0".

    Contains no underscore: the verl adapter puts it into keys that verl splits at underscores.
    """
    return f"{role.value}.{turn}"


def group_advantages(
    returns: Sequence[float | None],
    groups: Sequence[Hashable],
    *,
    scale: Scale = "std",
    leave_one_out: bool = False,
    least_spread: float = 0.0,
) -> tuple[float, ...]:
    """Advantage of each row relative to its group.

    Args:
        returns: Return of each row; None where it is unknown.
        groups: The group of each row (task, role and turn).
        scale: "std" divides by the group's standard deviation, STD_FLOOR at least, "none" does not.
        leave_one_out: The baseline of a row is the mean of the group's other rows.
        least_spread: Returns of a group that all lie within less than this count as equal: what
            noise alone does to the reward is no advantage.

    Returns:
        One number a row, 0.0 where the return is unknown or stands alone in its group, and for all
        rows of a group whose returns count as equal. The known rows of a group sum to 0.

    Raises:
        ValueError: where lengths differ or a return is not finite.
    """
    if len(returns) != len(groups):
        raise ValueError(f"{len(returns)} returns for {len(groups)} groups")
    members: dict[Hashable, list[int]] = defaultdict(list)
    known: dict[int, float] = {}
    for row, (value, group) in enumerate(zip(returns, groups, strict=True)):
        if value is None:
            continue
        if not math.isfinite(value):
            raise ValueError(f"return of row {row} in group {group!r} is {value}")
        members[group].append(row)
        known[row] = value
    advantages = [0.0] * len(returns)
    for rows in members.values():
        values = [known[row] for row in rows]
        if not told_apart(values, least_spread):
            continue
        longer = len(values) / (len(values) - 1) if leave_one_out else 1.0
        for row, advantage in zip(rows, _relative(values, scale), strict=True):
            advantages[row] = longer * advantage
    return tuple(advantages)


def told_apart(values: Sequence[float], least_spread: float) -> bool:
    """Whether returns of a group are at least two and differ, by `least_spread` at least."""
    if len(values) < 2:
        return False
    spread = max(values) - min(values)
    return spread > 0.0 and spread >= least_spread


def _relative(values: list[float], scale: Scale) -> list[float]:
    mean = math.fsum(values) / len(values)
    deviations = [value - mean for value in values]
    if scale == "none":
        return deviations
    variance = math.fsum(d * d for d in deviations) / (len(values) - 1)
    return [d / max(math.sqrt(variance), STD_FLOOR) for d in deviations]
