"""What the two agents share: from a conversation's state to an answer with its kernel."""

from __future__ import annotations

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


async def answer_as(
    role: Role,
    policy: Policy,
    state: CUDAConversationState,
    sampling: SamplingParams,
    budget: PromptBudget | None,
) -> AgentAnswer:
    """Prompt, generate, extract. Raises PolicyError where the model fails, UsageError where the
    task alone exceeds the budget."""
    messages = build_messages(state, role, budget=budget)
    generation = await policy.generate(messages, sampling)
    return AgentAnswer(
        messages=messages, generation=generation, extraction=extract_kernel(generation.text)
    )
