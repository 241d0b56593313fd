"""What a run takes over from a conversation manager that is handed to the trainer.

The policy that is trained speaks in a run, so an agent is taken as its class and its settings. What
a run cannot take over is refused in a sentence; nothing is left out without a word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from coding_framework.agents.answers import RoleAgent
from coding_framework.agents.tester import TesterAgent
from coding_framework.errors import UsageError
from coding_framework.orchestration.turn import Agent, ConversationConfig, RewardFn
from coding_framework.training.agent_specializer import SPEAKERS
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import JudgeFn, Role, SamplingParams

_OF_JUDGES = ("backend", "sandbox", "seed", "baselines", "profile", "experiment_without")
"""Settings of a judge that `judge_args` has too."""


class HasConversationConfig(Protocol):
    """The least that a manager says: when a conversation ends. `MultiTurnConversationManager` has
    agents, a tester, a judge and a reward too."""

    @property
    def config(self) -> ConversationConfig: ...


@dataclasses.dataclass(frozen=True)
class FromManager:
    """What a run takes over from a manager; the defaults: nothing."""

    reward: RewardFn | None = None
    agents: Mapping[Role, type[Agent]] | None = None
    judge: JudgeFn | None = None
    judge_args: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tester: bool = False


def from_manager(manager: HasConversationConfig | None, config: MultiTurnRLConfig) -> FromManager:
    """Raises UsageError where the manager holds what a run cannot take over, or contradicts it."""
    agents = getattr(manager, "agents", None)
    if manager is None or agents is None:
        return FromManager()
    tester = getattr(manager, "tester", None)
    if tester is not None and type(tester) is not TesterAgent:
        raise UsageError(
            f"the conversation manager's tester is a {type(tester).__name__}, which training "
            "cannot take over: hand over a TesterAgent, or none"
        )
    judge, judge_args = _judge(manager, config)
    return FromManager(
        reward=getattr(manager, "own_reward", None),
        agents=_agents(agents, config),
        judge=judge,
        judge_args=judge_args,
        tester=tester is not None,
    )


# --- agents ---------------------------------------------------------------------------------------


def _agents(
    agents: Mapping[Role, Agent], config: MultiTurnRLConfig
) -> Mapping[Role, type[Agent]] | None:
    """The classes of agents that are not those of this package; None where all are."""
    for role, agent in agents.items():
        _check_model(role, agent, config)
        _check_settings(role, agent, config)
    own = {r: type(a) for r, a in agents.items() if type(a) is not SPEAKERS[r]}
    if not own:
        return None
    if config.agents != MultiTurnRLConfig.model_fields["agents"].default:
        raise UsageError(
            "both the conversation manager and the setting agents name agents: leave one out"
        )
    for role, kind in own.items():
        if not issubclass(kind, RoleAgent):
            raise UsageError(
                f"the conversation manager's {role.value} is a {kind.__name__}, which training "
                "cannot give the policy that it trains: derive it from RoleAgent, or name a "
                "factory of agents in the setting agents"
            )
    return {role: type(agent) for role, agent in agents.items()}


def _check_model(role: Role, agent: Agent, config: MultiTurnRLConfig) -> None:
    folder = getattr(getattr(agent, "policy", None), "folder", None)
    start = config.start_of(role)
    if folder is not None and Path(folder).resolve() != Path(start).resolve():
        raise UsageError(
            f"the conversation manager's {role.value} speaks by {folder}, and the run trains "
            f"{start}: give both the same model"
        )


def _check_settings(role: Role, agent: Agent, config: MultiTurnRLConfig) -> None:
    if not isinstance(agent, RoleAgent):
        return
    said: dict[str, tuple[object, object]] = {
        "prompts": (agent.prompts, config.prompts),
    }
    if agent.sampling != SamplingParams():
        said["temperature"] = (agent.sampling.temperature, config.temperature)
        said["max_response_tokens"] = (agent.sampling.max_new_tokens, config.max_response_tokens)
        said["top_p"] = (agent.sampling.top_p, 1.0)
        said["top_k"] = (agent.sampling.top_k, 0)
    for name, (theirs, ours) in said.items():
        if theirs != ours:
            raise UsageError(
                f"the conversation manager's {role.value} has {name}={theirs} and the run {ours}: "
                "give both the same"
            )


# --- the judge ------------------------------------------------------------------------------------


def _judge(
    manager: HasConversationConfig, config: MultiTurnRLConfig
) -> tuple[JudgeFn | None, dict[str, Any]]:
    """A judge of the user's own, or what the run's usual judge has to be told to judge alike."""
    judge: Any = getattr(manager, "own_judge", None)
    if judge is None:
        changed = _changed(getattr(manager, "compiler", None))
        unknown = changed.keys() - {"sandbox"}
        if unknown:
            raise UsageError(
                f"the conversation manager's compiler has {_listed(unknown)} of its own, which "
                "the judges of a run cannot have: leave it out, or name a judge of your own"
            )
        return None, changed
    if config.judge != MultiTurnRLConfig.model_fields["judge"].default:
        raise UsageError("both the conversation manager and the setting judge name a judge")
    if type(judge).__module__.startswith("coding_framework."):
        changed = {k: v for k, v in _changed(judge).items() if k != "secret"}
        unknown = changed.keys() - set(_OF_JUDGES)
        if unknown:
            raise UsageError(
                f"the conversation manager's judge has {_listed(unknown)} of its own, which the "
                "judges of a run cannot have: leave it out"
            )
        return None, changed
    return judge, {}


def _changed(part: object) -> dict[str, Any]:
    """Settings of a part's `config` that are not the defaults."""
    config = getattr(part, "config", None)
    if isinstance(config, BaseModel):
        names = list(type(config).model_fields)
    elif dataclasses.is_dataclass(config) and not isinstance(config, type):
        names = [field.name for field in dataclasses.fields(config)]
    else:
        return {}
    default = type(config)()
    pairs = {name: getattr(config, name) for name in names}
    return {name: value for name, value in pairs.items() if value != getattr(default, name)}


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))
