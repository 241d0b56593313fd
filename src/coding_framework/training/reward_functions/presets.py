"""Reward presets as data: what each part is worth, and the curves' constants.

The totals of the presets are not on one scale; a threshold or an advantage never mixes two of them.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from coding_framework.errors import UsageError
from coding_framework.types import Record


class Milestone(Record):
    """A speedup that is paid for once it is reached."""

    over: Literal["eager", "compiled"]
    """PyTorch eager, or torch.compile; where that was not measured the milestone is not reached."""
    speedup: float = Field(gt=0.0)
    adds: float = Field(gt=0.0)


class RewardPreset(Record):
    """How a verdict becomes a number."""

    name: str
    scheme: Literal["weighted", "gated", "kevin", "milestones"]
    """Which function of cuda_performance_reward.py reads the numbers below."""
    stop_reward: float | None = None
    """Total of a correct turn at which a conversation ends; None: it has all its turns."""
    compilation: float = 0.0
    """Paid where nvcc accepted the code and it did no harm (limits, rules, cheats pay nothing); to
    failing turns once a conversation, and only before a correct one."""
    correctness: float = 0.0
    """Paid on `correct` alone: there is no share of it for a part of the tests."""
    performance: float = 0.0
    """The most that the normalised speedup adds."""
    efficiency: float = 0.0
    """The most that the mean of the hardware ratios (lanes, coalescing, occupancy) adds."""
    quality: float = 0.0
    """The most that code without warnings, spills, register and shared-memory pressure adds."""
    memory: float = 0.0
    """The most that a `weighted` preset pays for memory: all of it where a call holds no more than
    PyTorch eager does, else as much of it as eager's share."""
    improvement_bonus: float = 0.0
    """The most that a gain over the best earlier turn adds, on `correct` alone."""
    speedup_bonus: float = 0.0
    """The most that a large speedup adds beyond `performance`, on a curve that rises later."""
    speedup_midpoint: float = Field(default=2.0, gt=0.0)
    """Speedup at which the saturating curve s / (s + midpoint) is one half. Timing noise of 3%
    moves it by 0.0075 at most (at the midpoint), times the weight of the part."""
    bonus_midpoint: float = Field(default=10.0, gt=0.0)
    """Likewise of `speedup_bonus`."""
    speedup_cap: float = Field(default=10.0, gt=0.0)
    """Largest speedup that `kevin` pays; the saturating curves need no cap."""
    milestones: tuple[Milestone, ...] = ()
    """Of the scheme `milestones`: what measured speedups add, each once it is reached."""
    cheating_penalty: float = Field(default=-0.5, le=0.0)
    """The total of a turn with evidence of cheating, instead of anything else."""

    @model_validator(mode="after")
    def _correct_is_worth_more(self) -> Self:
        pressure = 2 * self.quality if self.scheme == "gated" else 0.0
        if not self.correctness > pressure:
            raise ValueError(
                f"correctness={self.correctness} of preset {self.name!r} must exceed {pressure}: "
                "else a wrong kernel could be worth as much as a correct one"
            )
        return self

    @property
    def of_measured_times(self) -> bool:
        """Whether it pays nothing for times that the emulator models."""
        return self.scheme == "milestones"


WEIGHTED = RewardPreset(
    name="weighted",
    scheme="weighted",
    stop_reward=0.8,
    compilation=0.30,
    correctness=0.30,
    performance=0.25,
    efficiency=0.10,
    quality=0.05,
    improvement_bonus=0.05,
    speedup_bonus=0.05,
)
GATED = RewardPreset(
    name="gated",
    scheme="gated",
    stop_reward=0.8,
    correctness=0.5,
    performance=0.4,
    efficiency=0.05,
    quality=0.05,
)
KEVIN = RewardPreset(
    name="kevin", scheme="kevin", correctness=0.3, performance=1.0, cheating_penalty=0.0
)
CORRECT = RewardPreset(
    name="correct", scheme="gated", stop_reward=1.0, correctness=1.0, cheating_penalty=0.0
)
"""Correctness alone, as groups of answers to one task are told apart by it: for a policy that
solves little, and where times are modelled at small sizes and say little of large ones."""
MILESTONES = RewardPreset(
    name="milestones",
    scheme="milestones",
    correctness=0.3,
    milestones=(
        Milestone(over="eager", speedup=0.8, adds=0.3),
        Milestone(over="eager", speedup=1.05, adds=0.4),
        Milestone(over="compiled", speedup=1.05, adds=0.2),
    ),
    cheating_penalty=0.0,
)
"""Steps of measured speedup, wide apart, so that the differences within a group are not noise: 0.3
for a correct kernel, 0.6 near eager, 1.0 above it, 1.2 above torch.compile."""
PRESETS = {preset.name: preset for preset in (WEIGHTED, GATED, KEVIN, CORRECT, MILESTONES)}


def preset_named(name: str) -> RewardPreset:
    """The preset of that name; raises UsageError with the choices."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(
            f"unknown reward preset {name!r}: choose one of {', '.join(PRESETS)}"
        ) from None
