"""An answer that repeats earlier code is drawn again, and what that cost is counted."""

from __future__ import annotations

from typing import Any

import pytest

from coding_framework.agents.extraction import extract_kernel
from coding_framework.agents.optimizer import OptimizerAgent
from coding_framework.types import AgentAnswer, Generation, SamplingParams, Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit

KERNEL = "__global__ void k() {} // forward"
CODE = extract_kernel(f"```cuda\n{KERNEL}\n```").code
STATE = make_state(make_turn(0, make_verdict(Status.WRONG_OUTPUT), code=CODE))


class Policy:
    """Gives these codes one after the other, five tokens each."""

    def __init__(self, *codes: str, ended: str = "stop") -> None:
        self.codes = list(codes)
        self.ended = ended
        self.seeds: list[int | None] = []
        self.temperatures: list[float] = []

    async def generate(self, messages: Any, sampling: SamplingParams) -> Generation:
        self.seeds.append(sampling.seed)
        self.temperatures.append(sampling.temperature)
        text = f"```cuda\n{self.codes.pop(0)}\n```"
        return Generation(text=text, response_ids=(1, 2, 3, 4, 5), finish_reason=self.ended)


async def asked(policy: Policy, redraws: int, **sampling: Any) -> AgentAnswer:
    agent = OptimizerAgent(policy, SamplingParams(seed=7, **sampling), redraws=redraws)
    return await agent.answer(STATE)


async def test_a_repeat_is_drawn_again_by_another_seed_until_it_is_none():
    policy = Policy(KERNEL, KERNEL, KERNEL.replace("k()", "other()"))
    answer = await asked(policy, redraws=3)
    assert "other" in (answer.extraction.code or "")
    assert len(set(policy.seeds)) == 3
    assert answer.redrawn_tokens == 10


async def test_the_last_repeat_stays_where_the_draws_are_used_up():
    answer = await asked(Policy(KERNEL, KERNEL), redraws=1)
    assert (answer.extraction.code, answer.redrawn_tokens) == (CODE, 5)


@pytest.mark.parametrize(("redraws", "temperature"), [(0, 1.0), (4, 0.0)])
async def test_nothing_is_drawn_again_unasked_or_where_it_would_be_the_same(redraws, temperature):
    policy = Policy(KERNEL)
    answer = await asked(policy, redraws, temperature=temperature)
    assert (len(policy.seeds), answer.redrawn_tokens) == (1, 0)


async def test_what_is_drawn_again_has_a_temperature_of_its_own():
    policy = Policy(KERNEL, KERNEL, KERNEL.replace("k()", "other()"))
    sampling = SamplingParams(temperature=0.6)
    agent = OptimizerAgent(policy, sampling, redraws=2, redraw_temperature=1.1)
    await agent.answer(STATE)
    assert policy.temperatures == [0.6, 1.1, 1.1]
    assert agent.sampling.temperature == 0.6


async def test_a_cut_answer_is_not_drawn_again_for_the_next_would_be_cut_too():
    policy = Policy(KERNEL, KERNEL, ended="length")
    answer = await asked(policy, redraws=3)
    assert (len(policy.seeds), answer.redrawn_tokens) == (1, 0)
