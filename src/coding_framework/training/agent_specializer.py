"""What each role has of its own: data, reward weights, sampling, weights of the model, metrics.

One policy may be shared by all roles, or each role may have an adapter of its own, by
configuration; nothing else in the package decides that. The tester is frozen: it has no data and no
reward, and a configuration that would train it is refused.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, model_validator

from coding_framework.agents.answers import RoleAgent
from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.agents.prompts import PROMPT_VERSION, PromptBudget
from coding_framework.store.folder import base_of_adapter, is_adapter
from coding_framework.store.records import RoleMetrics
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.training.reward_functions.presets import RewardPreset, preset_named
from coding_framework.types import (
    CUDAConversationState,
    ExampleKind,
    Policy,
    PromptVersion,
    Record,
    RewardComponents,
    Role,
    SamplingParams,
    TrainingExample,
)

P = TypeVar("P", bound=Policy)
SPEAKERS: Mapping[Role, type[RoleAgent]] = {
    Role.GENERATOR: GeneratorAgent,
    Role.OPTIMIZER: OptimizerAgent,
}
"""The roles that take turns."""


class RoleSpec(Record):
    """One role's own settings."""

    kinds: tuple[ExampleKind, ...] = ()
    """Kinds of examples it learns from; (): all that name the role."""
    reward_weights: Mapping[str, float] = Field(default_factory=dict)
    """Changes to the preset's numbers for this role's turns, e.g. {"performance": 0.4}."""
    sampling: SamplingParams = SamplingParams()
    adapter: str | None = None
    """PEFT folder; None: the model as it is. Not with a shared policy."""
    frozen: bool = False
    """Whether its turns are left out of training."""


class SpecializationConfig(Record):
    """How the roles differ. Maker: configuration files. Consumer: AgentSpecializer."""

    shared_policy: bool = True
    """One policy for all roles; else each role has its own adapter on one base model."""
    reward_preset: str | RewardPreset = "weighted"
    """Its name, or numbers of one's own."""
    prompts: PromptVersion = PROMPT_VERSION
    roles: Mapping[Role, RoleSpec] = Field(default_factory=dict)
    """A role that is not named has the defaults; the tester is always frozen."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        tester = self.roles.get(Role.TESTER)
        if tester is not None and (tester.kinds or tester.reward_weights or not tester.frozen):
            raise ValueError("the tester is frozen: give it frozen=True, no kinds and no weights")
        adapters = {spec.adapter for role, spec in self.roles.items() if role in SPEAKERS}
        if self.shared_policy and len(adapters) > 1:
            raise ValueError(
                "roles with different adapters share no policy: set shared_policy=False, or give "
                "all of them one adapter"
            )
        return self

    def of(self, role: Role) -> RoleSpec:
        """The settings of a role."""
        return self.roles.get(role, RoleSpec(frozen=role is Role.TESTER))


class RoleModels(Record):
    """What speaks for each role. Maker: `role_models`."""

    model: str
    """Hugging Face folder."""
    specialization: SpecializationConfig = SpecializationConfig()
    """With an adapter of that model for each role, where they have one."""


def role_models(folder: Path) -> RoleModels:
    """What RL left in `folder`: one model for all roles, or an adapter for each (`final_model` of a
    run with a policy a role)."""
    adapters = {role: folder / role.value for role in SPEAKERS}
    if not all(map(is_adapter, adapters.values())):
        return RoleModels(model=str(folder))
    base = base_of_adapter(adapters[Role.GENERATOR])
    roles = {role: RoleSpec(adapter=str(adapter)) for role, adapter in adapters.items()}
    own = SpecializationConfig(shared_policy=False, roles=roles)
    return RoleModels(model=base, specialization=own)


class AgentSpecializer:
    """Gives each role what the configuration says is its own."""

    def __init__(self, config: SpecializationConfig | None = None) -> None:
        """Raises UsageError for an unknown preset, ValueError for weights that it cannot have."""
        self.config = config or SpecializationConfig()
        paid = (*SPEAKERS, Role.COMPILER)  # whose weights are the preset's own
        self._rewards = {role: CUDAPerformanceReward(self._preset(role)) for role in paid}

    def examples(self, role: Role, given: Iterable[TrainingExample]) -> list[TrainingExample]:
        """The examples that this role learns from; none for a frozen one."""
        spec = self.config.of(role)
        if spec.frozen:
            return []
        return [e for e in given if e.role is role and (not spec.kinds or e.kind in spec.kinds)]

    @property
    def learning(self) -> frozenset[Role]:
        """The roles whose turns are learnt from in RL."""
        return frozenset(role for role in SPEAKERS if not self.config.of(role).frozen)

    def reward(self, state: CUDAConversationState) -> RewardComponents | None:
        """Reward of the last turn by the weights of the role that took it."""
        return self._rewards[state.turns[-1].role](state)

    def policies(self, load: Callable[[str | None], P]) -> dict[Role, P]:
        """The policy of each speaking role; `load` is called once an adapter."""
        loaded: dict[str | None, P] = {}
        policies = {}
        for role in SPEAKERS:
            adapter = self.config.of(role).adapter
            if adapter not in loaded:
                loaded[adapter] = load(adapter)
            policies[role] = loaded[adapter]
        return policies

    def agents(
        self, policies: Mapping[Role, Policy], budget: PromptBudget | None = None, **how: Any
    ) -> dict[Role, RoleAgent]:
        """The speaking agents, each with its policy and sampling; `how` goes to both."""
        return {
            role: agent(
                policies[role],
                self.config.of(role).sampling,
                budget=budget,
                prompts=self.config.prompts,
                **how,
            )
            for role, agent in SPEAKERS.items()
        }

    def metrics(self, states: Sequence[CUDAConversationState]) -> dict[Role, RoleMetrics]:
        """What each role's turns came to; masked turns are left out, absent roles too."""
        by_role = defaultdict(list)
        for state in states:
            for turn in state.turns:
                if turn.masked is None and turn.verdict is not None:
                    by_role[turn.role].append(turn)
        return {
            role: RoleMetrics(
                turns=len(turns),
                compile_rate=_mean([float(t.verdict.compiled) for t in turns if t.verdict]) or 0.0,
                correct_rate=_mean([float(t.verdict.correct) for t in turns if t.verdict]) or 0.0,
                mean_reward=_mean([t.reward.total for t in turns if t.reward is not None]),
                mean_speedup=_mean(
                    [
                        t.verdict.speedup
                        for t in turns
                        if t.verdict and t.verdict.speedup is not None
                    ]
                ),
                mean_response_tokens=_mean([float(t.generation.tokens) for t in turns]) or 0.0,
            )
            for role, turns in by_role.items()
        }

    def _preset(self, role: Role) -> RewardPreset:
        named, changes = self.config.reward_preset, self.config.of(role)
        preset = preset_named(named) if isinstance(named, str) else named
        if not changes.reward_weights:
            return preset
        name = f"{preset.name}+{role.value}"
        return RewardPreset.model_validate(
            {**preset.model_dump(), **changes.reward_weights, "name": name}
        )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
