"""What a run is trained on: its reward, agents and judge, by its configuration and what it was
handed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from coding_framework.errors import UsageError
from coding_framework.orchestration.turn import RewardFn
from coding_framework.training.agent_specializer import (
    SPEAKERS,
    AgentSpecializer,
    RoleSpec,
    SpecializationConfig,
)
from coding_framework.training.from_manager import HasConversationConfig, from_manager
from coding_framework.training.handed_over import HandedOver, packed, write_handed_over
from coding_framework.training.import_paths import absolute
from coding_framework.training.reward_functions.custom import preset_of
from coding_framework.training.reward_functions.presets import RewardPreset
from coding_framework.training.reward_trial import try_reward
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import Task


@dataclass(frozen=True)
class Objective:
    """Maker: `objective`. Consumers: the trainer, `episode_spec`."""

    config: MultiTurnRLConfig
    """With what the manager says of judge and tester."""
    preset: str | RewardPreset
    """Where no reward takes its place."""
    reward_path: str | None
    handed: HandedOver
    objects: bytes | None
    """The objects of `handed` for other processes; None: there are none."""

    def require_reward(self, task: Task, environment: Mapping[str, str]) -> None:
        """Try a reward of the user's. Raises UsageError where it could not train."""
        if self.handed.reward is None and self.reward_path is None:
            return
        with TemporaryDirectory(prefix="cuda-rl-reward-") as folder:
            file = None
            if self.handed.reward is not None and self.objects is not None:
                file = Path(folder) / "reward.pkl"
                write_handed_over(packed(HandedOver(reward=self.handed.reward)), file)
            try_reward(task, path=self.reward_path, handed=file, environment=environment)


def objective(
    config: MultiTurnRLConfig,
    manager: HasConversationConfig | None = None,
    reward: RewardFn | None = None,
) -> Objective:
    """Raises UsageError where something cannot be used, cannot travel to the workers, or
    contradicts the configuration."""
    theirs = from_manager(manager, config)
    if config.reward is not None and reward is not None:
        raise UsageError(
            f"a reward was handed over, and the setting reward names {config.reward}: leave one out"
        )
    if reward is None and config.reward is None:
        reward = theirs.reward
    preset = preset_of(reward) if reward is not None else None
    own = reward if reward is not None and preset is None else None
    if own is not None and not callable(own):
        raise UsageError(
            f"the reward is a {type(own).__name__}: give a function of a conversation's state"
        )
    if own is not None and config.role_rewards:
        raise UsageError(
            "role_rewards change the numbers of a preset, and the reward that was handed over is "
            "none: leave role_rewards out"
        )
    if theirs.judge is not None and (theirs.tester or config.tester):
        raise UsageError("a judge of one's own runs no probes: leave the tester out")
    handed = HandedOver(reward=own, judge=theirs.judge, agents=theirs.agents)
    changed = MultiTurnRLConfig.model_validate(
        {
            **config.model_dump(),
            "judge_args": {**theirs.judge_args, **config.judge_args},
            "tester": config.tester or theirs.tester,
        }
    )
    chosen = preset if preset is not None else config.reward_preset
    specialization(changed, chosen)  # refused here rather than in a worker
    return Objective(
        config=changed,
        preset=chosen,
        reward_path=absolute(config.reward) if config.reward is not None else None,
        handed=handed,
        objects=packed(handed) if handed != HandedOver() else None,
    )


def specialization(config: MultiTurnRLConfig, preset: str | RewardPreset) -> SpecializationConfig:
    """What each role has of its own in this run. Raises UsageError for rewards of a role that the
    preset does not have."""
    phase = config.phase
    try:
        found = SpecializationConfig(
            shared_policy=phase is None,
            reward_preset=preset,
            prompts=config.prompts,
            roles={
                role: RoleSpec(
                    reward_weights=config.role_rewards.get(role, {}),
                    frozen=phase is not None and phase.role is not role,
                    adapter=phase.frozen_adapter if phase and phase.role is not role else None,
                )
                for role in SPEAKERS
            },
        )
        AgentSpecializer(found)
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"]))
        name = preset if isinstance(preset, str) else preset.name
        raise UsageError(f"role_rewards {where}: {first['msg']} (preset {name})") from e
    return found
