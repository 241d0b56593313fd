"""The agent that writes a first kernel for a task."""

from __future__ import annotations

from coding_framework.agents.answers import AgentAnswer, answer_as
from coding_framework.agents.prompts import PromptBudget
from coding_framework.types import CUDAConversationState, Policy, Role, SamplingParams


class GeneratorAgent:
    """Opens a conversation: from the task alone to a kernel."""

    role = Role.GENERATOR

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
        """Answer to the state so far."""
        return await answer_as(self.role, self.policy, state, self.sampling, self.budget)
