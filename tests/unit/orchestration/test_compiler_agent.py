"""The compiler's turn: of its kernels the fastest that is correct."""

from __future__ import annotations

import pytest

from coding_framework.orchestration.compiler import CompilerAgent
from coding_framework.types import (
    BenchmarkResult,
    CUDAConversationState,
    KernelExample,
    Status,
    Task,
    Verdict,
)
from support.made_conversations import make_task, make_verdict

pytestmark = pytest.mark.unit
TIMES = {"naive": 3.0, "shared": None, "shuffle": 1.0, "wide": 2.0}
"""Milliseconds of each level; None: it is wrong."""


async def judged(task: Task, code: str) -> Verdict:
    ms = TIMES[code]
    if ms is None:
        return make_verdict(Status.WRONG_OUTPUT)
    timing = BenchmarkResult(kernel_ms=ms, kernel_ms_ci95=(ms, ms), modelled=True)
    return make_verdict(Status.CORRECT).model_copy(update={"timing": timing})


async def test_the_fastest_correct_level_is_the_answer_and_further_candidates_are_slower() -> None:
    kernels = [KernelExample(task="relu", level=level, code=level) for level in TIMES]
    agent = CompilerAgent(kernels, judged)
    state = CUDAConversationState(conversation_id="c", task=make_task())
    answers = [(await agent.answer(state, sample=k)).extraction.code for k in range(4)]
    assert answers == ["shuffle", "wide", "naive", "shuffle"]


async def test_the_naive_kernel_stays_where_none_is_correct() -> None:
    agent = CompilerAgent([KernelExample(task="relu", level="shared", code="shared")], judged)
    state = CUDAConversationState(conversation_id="c", task=make_task())
    assert (await agent.answer(state)).extraction.code == "shared"
