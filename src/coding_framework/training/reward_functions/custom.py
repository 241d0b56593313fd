"""Rewards of the user's own: what of them may reach an update.

Guaranteed: a custom reward's turn is either paid a finite number, the one that the reward gave, or
raises `RewardError`, by which the turn is masked and counted. It is never paid a quiet 0.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

from coding_framework.errors import RewardError, UsageError
from coding_framework.orchestration.turn import RewardFn
from coding_framework.training.import_paths import named
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.training.reward_functions.overlong import OverlongShaping
from coding_framework.training.reward_functions.presets import PRESETS, RewardPreset
from coding_framework.types import CUDAConversationState, RewardComponents, RewardPart

MOST_REWARD = 1e6
"""Larger totals are taken for a mistake: in float32 they would hide what tells answers apart."""
CUSTOM = "custom"
"""What stands for the preset in the records of a reward that gives numbers."""


class CheckedReward:
    """A user's reward; what it gives that cannot be learnt from is a `RewardError`."""

    def __init__(self, reward: Callable[[CUDAConversationState], Any]) -> None:
        self._reward = reward
        self.name = name_of(reward)

    def __call__(self, state: CUDAConversationState) -> RewardComponents:
        """Reward of the last turn. Raises RewardError."""
        try:
            said = self._reward(state)
        except Exception as e:  # the user's code: its faults mask the turn
            raise RewardError(f"the reward {self.name} raised {type(e).__name__}: {e}") from e
        return self._components(said)

    def _components(self, said: Any) -> RewardComponents:
        if isinstance(said, RewardComponents):
            found = said
        elif isinstance(said, Real):
            value = float(said)
            part = RewardPart(name=self.name, value=value, limit=value, why="a reward of one's own")
            found = RewardComponents(preset=CUSTOM, parts=(part,))
        else:
            raise RewardError(
                f"the reward {self.name} gave {_shown(said)}: it has to give a number or "
                "RewardComponents for each turn that was judged"
            )
        if not math.isfinite(found.total) or abs(found.total) > MOST_REWARD:
            raise RewardError(
                f"the reward {self.name} gave {found.total:g}: it has to give a finite number of "
                f"at most {MOST_REWARD:g}"
            )
        return found


def checked(reward: RewardFn) -> RewardFn:
    """The reward, checked where it is not of this package."""
    ours = (CUDAPerformanceReward, OverlongShaping, CheckedReward)
    return reward if isinstance(reward, ours) else CheckedReward(reward)


def preset_of(reward: object) -> str | RewardPreset | None:
    """The preset that a reward is: its name, or with changed numbers the preset itself; None where
    it is something else."""
    if type(reward) is not CUDAPerformanceReward:
        return None
    preset = reward.preset
    return preset.name if PRESETS.get(preset.name) == preset else preset


def chosen_reward(handed: RewardFn | None, path: str | None) -> RewardFn | None:
    """The reward of one's own that a run trains on: the object that was handed over, or what a path
    names; None: a preset. Raises UsageError for a path that names none."""
    if handed is not None:
        return checked(handed)
    return checked(reward_at(path)) if path is not None else None


def reward_at(path: str) -> RewardFn:
    """The reward that a path names: a function of a conversation's state, or a class or function
    without arguments that makes one. Raises UsageError."""
    found = named(path)
    if not callable(found):
        raise UsageError(f"{path} is no reward: name a function of a conversation's state")
    try:
        made = found() if inspect.isclass(found) or _needs_nothing(found) else found
    except Exception as e:  # the user's code
        raise UsageError(f"the reward {path} cannot be made ({type(e).__name__}: {e})") from e
    if not callable(made):
        raise UsageError(f"{path} makes {_shown(made)}: it has to make a reward")
    return made  # type: ignore[no-any-return]


def name_of(reward: object) -> str:
    """What messages and records call a reward."""
    if isinstance(reward, partial):
        return name_of(reward.func)
    return str(getattr(reward, "__qualname__", type(reward).__qualname__))


def _needs_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def _shown(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
