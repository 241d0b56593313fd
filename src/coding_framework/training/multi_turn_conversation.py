"""Conversations for training: the turn loop with its agents, judge and reward put together once.

A thin driver of `orchestration/turn.py`; it adds nothing to what a turn is. Evaluation and the
trainer's rollout workers call the same functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from coding_framework.orchestration.turn import (
    Agent,
    ConversationConfig,
    RewardFn,
    run_conversation,
)
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    JudgeFn,
    Role,
    Task,
)

__all__ = ["CUDAConversationState", "ConversationTurn", "MultiTurnConversationManager"]


class MultiTurnConversationManager:
    """Runs conversations of a generator and an optimizer about tasks.

    Stateless between conversations, so one manager may run many at once.
    """

    def __init__(
        self,
        generator_agent: Agent,
        optimizer_agent: Agent,
        *,
        judge: JudgeFn,
        reward: RewardFn,
        config: ConversationConfig | None = None,
    ) -> None:
        self.agents = {Role.GENERATOR: generator_agent, Role.OPTIMIZER: optimizer_agent}
        self.judge = judge
        self.reward = reward
        self.config = config if config is not None else ConversationConfig()

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
            conversation_id=conversation_id,
            state=state,
        )

    async def run_many(
        self, tasks: Iterable[Task], *, concurrency: int = 16
    ) -> AsyncIterator[CUDAConversationState]:
        """Conversations about `tasks`, `concurrency` at once, each as soon as it ends.

        The first that raises ends all.
        """
        limit = asyncio.Semaphore(concurrency)

        async def one(task: Task) -> CUDAConversationState:
            async with limit:
                return await self.run(task)

        running = [asyncio.create_task(one(task)) for task in tasks]
        try:
            for next_done in asyncio.as_completed(running):
                yield await next_done
        finally:
            for job in running:
                job.cancel()
            await asyncio.gather(*running, return_exceptions=True)
