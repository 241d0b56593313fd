"""Each role gets what is its own, and the tester nothing to learn from."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from coding_framework.agents.policies import ScriptedPolicy
from coding_framework.training.agent_specializer import (
    AgentSpecializer,
    RoleSpec,
    SpecializationConfig,
)
from coding_framework.types import Role, SamplingParams, Status, TrainingExample
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit


def example(role: Role, kind: str) -> TrainingExample:
    return TrainingExample(id=kind, task=make_task(), role=role, kind=kind, code="c")  # type: ignore[arg-type]


EXAMPLES = [
    example(Role.GENERATOR, "generate"),
    example(Role.OPTIMIZER, "optimize"),
    example(Role.OPTIMIZER, "repair"),
]


def test_each_role_learns_from_its_own_examples_and_kinds():
    specializer = AgentSpecializer(
        SpecializationConfig(roles={Role.OPTIMIZER: RoleSpec(kinds=("repair",))})
    )
    assert [e.kind for e in specializer.examples(Role.GENERATOR, EXAMPLES)] == ["generate"]
    assert [e.kind for e in specializer.examples(Role.OPTIMIZER, EXAMPLES)] == ["repair"]
    assert specializer.examples(Role.TESTER, EXAMPLES) == []


def test_each_roles_turns_are_rewarded_by_its_weights():
    specializer = AgentSpecializer(
        SpecializationConfig(roles={Role.OPTIMIZER: RoleSpec(reward_weights={"performance": 0.5})})
    )
    fast = make_verdict(Status.CORRECT, 2.0)
    first = make_state(make_turn(0, fast, "a"))
    second = make_state(make_turn(0, fast, "a"), make_turn(1, fast, "b"))
    limits = [
        {p.name: p.limit for p in specializer.reward(state).parts}["performance"]
        for state in (first, second)
    ]
    assert limits == [0.25, 0.5]


def test_adapters_are_loaded_once_each_and_a_shared_policy_only_once():
    def loaded_by(config: SpecializationConfig) -> list[str | None]:
        loads: list[str | None] = []

        def load(adapter: str | None) -> ScriptedPolicy:
            loads.append(adapter)
            return ScriptedPolicy(["x"])

        policies = AgentSpecializer(config).policies(load)
        assert set(policies) == {Role.GENERATOR, Role.OPTIMIZER}
        return loads

    assert loaded_by(SpecializationConfig()) == [None]
    own = {Role.GENERATOR: RoleSpec(adapter="g"), Role.OPTIMIZER: RoleSpec(adapter="o")}
    assert loaded_by(SpecializationConfig(shared_policy=False, roles=own)) == ["g", "o"]
    with pytest.raises(ValidationError, match="share no policy"):
        SpecializationConfig(roles=own)


def test_agents_have_their_own_sampling():
    config = SpecializationConfig(
        prompts="v2", roles={Role.OPTIMIZER: RoleSpec(sampling=SamplingParams(temperature=0.3))}
    )
    policy = ScriptedPolicy(["x"])
    agents = AgentSpecializer(config).agents({Role.GENERATOR: policy, Role.OPTIMIZER: policy})
    assert [agents[r].sampling.temperature for r in agents] == [1.0, 0.3]
    assert {agent.prompts for agent in agents.values()} == {"v2"}


@pytest.mark.parametrize(
    "spec", [RoleSpec(), RoleSpec(frozen=True, kinds=("repair",)),
             RoleSpec(frozen=True, reward_weights={"performance": 1.0})]
)  # fmt: skip
def test_a_tester_that_would_be_trained_is_refused(spec: RoleSpec):
    with pytest.raises(ValidationError, match="frozen"):
        SpecializationConfig(roles={Role.TESTER: spec})


def test_metrics_are_by_role_and_leave_masked_turns_out():
    states = [
        make_state(
            make_turn(0, make_verdict(Status.WRONG_OUTPUT), "a"),
            make_turn(1, make_verdict(Status.CORRECT, 2.0), "b"),
            make_turn(2, None, "c", masked="DeviceError: gone"),
        )
    ]
    metrics = AgentSpecializer().metrics(states)
    assert (metrics[Role.GENERATOR].correct_rate, metrics[Role.OPTIMIZER].correct_rate) == (0, 1)
    assert metrics[Role.OPTIMIZER].turns == 1
    assert metrics[Role.OPTIMIZER].mean_speedup == 2.0
