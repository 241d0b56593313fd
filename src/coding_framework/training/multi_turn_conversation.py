"""Conversations for training: the turn loop with its agents, judge and reward put together once.

A thin driver of `orchestration/turn.py`; it adds nothing to what a turn is. Evaluation and the
trainer's rollout workers call the same functions.
"""

from __future__ import annotations

from typing import Any, Protocol

from coding_framework.errors import UsageError
from coding_framework.orchestration.turn import (
    Agent,
    ConversationConfig,
    RewardFn,
    Tester,
    run_conversation,
)
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.training.reward_functions.custom import checked
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    JudgeFn,
    Role,
    Task,
)

__all__ = ["CUDAConversationState", "ConversationTurn", "MultiTurnConversationManager"]

DEFAULT_CONFIG = ConversationConfig(max_turns=5, stop_without_gain=3)
"""Generation, then up to four turns of optimisation; three turns without gain are enough."""


class JudgingBenchmarker(Protocol):
    """A benchmarker that judges what it times (cuda: `CUDABenchmarker`)."""

    def judging(self, compiler: Any = None) -> JudgeFn:
        """The judge that compiles with `compiler` and times with this benchmarker."""
        ...


class MultiTurnConversationManager:
    """Runs conversations of a generator and an optimizer about tasks; the tester, where there is
    one, helps the optimizer with what it finds.

    Verdicts come from `judge` (a `JudgePool` for many at once) or, one at a time, from `compiler`
    and `benchmarker`. Stateless between conversations, so one manager may run many at once.
    """

    def __init__(
        self,
        generator_agent: Agent,
        optimizer_agent: Agent,
        tester_agent: Tester | None = None,
        compiler: Any = None,
        benchmarker: JudgingBenchmarker | None = None,
        *,
        judge: JudgeFn | None = None,
        reward: RewardFn | None = None,
        config: ConversationConfig | None = None,
    ) -> None:
        """reward: default the preset "weighted". config: default DEFAULT_CONFIG. Raises UsageError
        where there is nothing to judge with."""
        self.own_judge, self.own_reward = judge, reward
        """As they were given; None: the usual ones."""
        self.compiler = compiler
        if judge is None:
            if benchmarker is None:
                raise UsageError(
                    "a conversation needs a judge: give judge=..., or compiler=CUDACompiler() and "
                    "benchmarker=CUDABenchmarker()"
                )
            judge = benchmarker.judging(compiler)
        self.agents = {Role.GENERATOR: generator_agent, Role.OPTIMIZER: optimizer_agent}
        self.tester = tester_agent
        self.judge = judge
        self.reward: RewardFn = checked(reward) if reward is not None else CUDAPerformanceReward()
        self.config = config if config is not None else DEFAULT_CONFIG

    async def run(
        self,
        task: Task,
        *,
        conversation_id: str | None = None,
        state: CUDAConversationState | None = None,
    ) -> CUDAConversationState:
        """One conversation to its end; with `state`, what is left of that one.

        Raises PolicyError where a model fails to answer.
        """
        return await run_conversation(
            task,
            self.agents,
            self.judge,
            self.reward,
            self.config,
            tester=self.tester,
            conversation_id=conversation_id,
            state=state,
        )
