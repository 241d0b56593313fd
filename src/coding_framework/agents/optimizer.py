"""The agent that improves or repairs a kernel with the judge's feedback."""

from __future__ import annotations

from coding_framework.agents.answers import AgentAnswer, answer_as
from coding_framework.agents.prompts import PromptBudget
from coding_framework.types import CUDAConversationState, Policy, Role, SamplingParams


class OptimizerAgent:
    """Every later turn: from the best correct kernel, else the last one, to a better one."""

    role = Role.OPTIMIZER

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
        """Answer to the state so far; a generator's answer where no kernel is there yet."""
        return await answer_as(self.role, self.policy, state, self.sampling, self.budget)
