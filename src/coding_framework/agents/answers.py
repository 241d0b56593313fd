"""What the two agents share: from a conversation's state to an answer with its kernel."""

from __future__ import annotations

from typing import ClassVar

from coding_framework.agents.extraction import extract_kernel
from coding_framework.agents.prompts import PromptBudget, build_messages
from coding_framework.types import (
    CUDAConversationState,
    Extraction,
    Generation,
    Message,
    Policy,
    Record,
    Role,
    SamplingParams,
)


class AgentAnswer(Record):
    """An agent's part of a turn. Maker: an agent. Consumer: orchestration/turn."""

    messages: tuple[Message, ...]
    generation: Generation
    extraction: Extraction


class RoleAgent:
    """An agent of one role. Subclasses name the role, and nothing else."""

    role: ClassVar[Role]

    def __init__(
        self,
        policy: Policy,
        sampling: SamplingParams | None = None,
        *,
        budget: PromptBudget | None = None,
    ) -> None:
        self.policy = policy
        self.sampling = sampling or SamplingParams()
        self.budget = budget

    async def answer(self, state: CUDAConversationState) -> AgentAnswer:
        """Prompt, generate, extract. Raises PolicyError where the model fails, UsageError where the
        task alone exceeds the budget."""
        messages = build_messages(state, self.role, budget=self.budget)
        generation = await self.policy.generate(messages, self.sampling)
        return AgentAnswer(
            messages=messages, generation=generation, extraction=extract_kernel(generation.text)
        )
