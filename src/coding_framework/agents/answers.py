"""The agents' shared part: it turns a conversation's state into an answer with a kernel."""

from __future__ import annotations

from typing import ClassVar

from coding_framework.agents.devices import DEFAULT_DEVICE
from coding_framework.agents.extraction import extract_kernel
from coding_framework.agents.prompts import (
    PROMPT_VERSION,
    PromptBudget,
    build_messages,
    shown_turn,
)
from coding_framework.types import (
    AgentAnswer,
    CUDAConversationState,
    Policy,
    PromptVersion,
    Role,
    SamplingParams,
)

SAMPLE_STRIDE = 1_000_003
"""Between the seeds of the candidates of a turn; a prime, so that no two runs' seeds line up."""


class RoleAgent:
    """An agent of one role. A subclass only names its role."""

    role: ClassVar[Role]

    def __init__(
        self,
        policy: Policy,
        sampling: SamplingParams | None = None,
        *,
        budget: PromptBudget | None = None,
        prompts: PromptVersion = PROMPT_VERSION,
        device: str = DEFAULT_DEVICE,
    ) -> None:
        self.policy = policy
        self.sampling = sampling or SamplingParams()
        self.budget = budget
        self.prompts = prompts
        self.device = device

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> AgentAnswer:
        """Prompt, generate, extract. Candidates of one turn differ by `sample`, also where sampling
        has a seed. Raises PolicyError where the model fails, UsageError where the task alone
        exceeds the budget."""
        messages = build_messages(
            state, self.role, budget=self.budget, version=self.prompts, device=self.device
        )
        sampling = self.sampling
        if sample and sampling.seed is not None:
            sampling = sampling.model_copy(update={"seed": sampling.seed + SAMPLE_STRIDE * sample})
        generation = await self.policy.generate(messages, sampling)
        shown = shown_turn(state) if self.role is Role.OPTIMIZER else None
        extraction = extract_kernel(generation.text, shown.code if shown is not None else None)
        return AgentAnswer(messages=messages, generation=generation, extraction=extraction)
