"""What a run takes over from a conversation manager, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coding_framework.agents.generator import GeneratorAgent
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.agents.tester import TesterAgent
from coding_framework.cuda.judge import JudgeConfig
from coding_framework.errors import UsageError
from coding_framework.training.from_manager import FromManager, from_manager
from coding_framework.training.multi_turn_conversation import MultiTurnConversationManager
from coding_framework.training.objective import objective
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import Role, SamplingParams

pytestmark = pytest.mark.unit

CONFIG = MultiTurnRLConfig.cpu(model_path="/models/one", compute_dtype="float32")
SPEAKS = SimpleNamespace(folder="/models/one")


class OwnGenerator(GeneratorAgent):
    """A generator of the user's."""


class PoolOfOurs:
    """Stands for `JudgePool`: known by its module, with a `JudgeConfig`."""

    def __init__(self, **settings: Any) -> None:
        self.config = JudgeConfig(**settings)


PoolOfOurs.__module__ = "coding_framework.cuda.many.pool"


def own_judge(task: Any, code: str) -> Any:
    raise NotImplementedError


def manager(
    generator: Any = None, *, judge: Any = own_judge, **others: Any
) -> MultiTurnConversationManager:
    first = generator or GeneratorAgent(SPEAKS)
    return MultiTurnConversationManager(first, OptimizerAgent(SPEAKS), judge=judge, **others)


def test_nothing_is_taken_over_where_there_is_nothing() -> None:
    assert from_manager(None, CONFIG) == FromManager()


def test_agents_judge_tester_and_reward_are_those_of_the_run() -> None:
    def reward(_: Any) -> float:
        return 0.5

    given = manager(OwnGenerator(SPEAKS), reward=reward)
    found = objective(CONFIG, given)
    assert found.handed.reward is reward
    assert found.handed.judge is own_judge
    assert found.handed.agents == {Role.GENERATOR: OwnGenerator, Role.OPTIMIZER: OptimizerAgent}
    assert objective(CONFIG, given, lambda _: 1.0).handed.reward is not reward


def test_a_judge_of_ours_is_made_again_with_its_settings() -> None:
    async def probe(*_: Any) -> Any: ...

    pool = PoolOfOurs(backend="emulator", sandbox="native", secret=b"s" * 32)
    found = objective(CONFIG, manager(judge=pool, tester_agent=TesterAgent(probe)))
    assert found.config.judge_args == {"backend": "emulator", "sandbox": "native"}
    assert found.config.tester
    assert found.objects is None


@pytest.mark.parametrize(
    ("given", "changes", "said"),
    [
        (
            lambda: manager(GeneratorAgent(SimpleNamespace(folder="/models/two"))),
            {},
            "generator speaks by /models/two, and the run trains /models/one: give both the same",
        ),
        (lambda: manager(GeneratorAgent(SPEAKS, prompts="v2")), {}, "prompts=v2 and the run v1"),
        (
            lambda: manager(GeneratorAgent(SPEAKS, SamplingParams(temperature=0.2))),
            {},
            r"has temperature=0\.2 and the run 1\.0",
        ),
        (lambda: manager(SimpleNamespace(answer=None)), {}, "derive it from RoleAgent"),
        (lambda: manager(OwnGenerator(SPEAKS)), {"agents": "a:b"}, "both .* name agents"),
        (lambda: manager(), {"judge": "a:b"}, "both .* name a judge"),
        (lambda: manager(judge=PoolOfOurs(seeds=9)), {}, "judge has seeds of its own"),
        (lambda: manager(tester_agent=SimpleNamespace(probe=None)), {}, "hand over a TesterAgent"),
        (lambda: manager(tester_agent=TesterAgent(own_judge)), {}, "runs no probes"),
    ],
)  # fmt: skip
def test_what_a_run_cannot_take_over_is_one_sentence(
    given: Any, changes: dict[str, object], said: str
) -> None:
    config = MultiTurnRLConfig.model_validate({**CONFIG.model_dump(), **changes})
    with pytest.raises(UsageError, match=said):
        objective(config, given())
