"""The agents' shared part: it turns a conversation's state into an answer with a kernel."""

from __future__ import annotations

from typing import Any, ClassVar

from coding_framework.agents.devices import this_device
from coding_framework.agents.extraction import extract_kernel
from coding_framework.agents.prompts import (
    PROMPT_VERSION,
    PromptBudget,
    build_messages,
)
from coding_framework.errors import UsageError
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
REDRAW_STRIDE = 15_485_863
"""Likewise between an answer and the one that is drawn in its place."""
_NOT_GIVEN: Any = object()


class RoleAgent:
    """An agent of one role. A subclass only names its role."""

    role: ClassVar[Role]

    def __init__(
        self,
        policy: Policy = _NOT_GIVEN,
        sampling: SamplingParams | None = None,
        *,
        budget: PromptBudget | None = None,
        prompts: PromptVersion = PROMPT_VERSION,
        device: str | None = None,
        redraws: int = 0,
        redraw_temperature: float | None = None,
    ) -> None:
        """policy: the model that answers. device: the GPU that prompts tell of; None:
        `this_device`. redraws: how often an answer whose code was there before is drawn again;
        where the likeliest token is taken it would be the same again. redraw_temperature: of such
        an answer; None: as the others. Raises UsageError without a policy."""
        if policy is _NOT_GIVEN:
            raise UsageError(
                f"{type(self).__name__} needs a model that answers: give it a policy of "
                "coding_framework.agents.policies, as OpenAIPolicy(url, model) of a server"
            )
        self.redraws = redraws
        self.redraw_temperature = redraw_temperature
        self.policy = policy
        self.sampling = sampling or SamplingParams()
        self.budget = budget
        self.prompts = prompts
        self.device = device or this_device()

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> AgentAnswer:
        """Prompt, generate, extract. Candidates of one turn differ by `sample`, also where sampling
        has a seed. Code that an earlier turn gave is drawn again, and the tokens are counted.
        Raises PolicyError where the model fails, UsageError where the task alone exceeds the
        budget."""
        messages = build_messages(
            state, self.role, budget=self.budget, version=self.prompts, device=self.device
        )
        sampling = self.sampling
        if sample and sampling.seed is not None:
            sampling = sampling.model_copy(update={"seed": sampling.seed + SAMPLE_STRIDE * sample})
        there = {turn.code for turn in state.turns if turn.code is not None}
        redraws = self.redraws if there and sampling.temperature > 0 else 0
        spent = 0
        for redraw in range(redraws + 1):
            if redraw:
                sampling = self._again(sampling)
            generation = await self.policy.generate(messages, sampling)
            extraction = extract_kernel(generation.text)
            cut = generation.finish_reason == "length"  # and so would the next one be
            if cut or extraction.code not in there or redraw == redraws:
                break
            spent += generation.tokens
        return AgentAnswer(
            messages=messages, generation=generation, extraction=extraction, redrawn_tokens=spent
        )

    def _again(self, sampling: SamplingParams) -> SamplingParams:
        """Of the answer that is drawn in the place of one by `sampling`."""
        new: dict[str, float] = {}
        if sampling.seed is not None:
            new["seed"] = sampling.seed + REDRAW_STRIDE
        if self.redraw_temperature is not None:
            new["temperature"] = self.redraw_temperature
        return sampling.model_copy(update=new)
