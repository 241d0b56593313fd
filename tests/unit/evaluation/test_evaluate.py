"""Evaluation runs: concurrent, stored one by one, resumed without repeating."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest

from coding_framework.errors import PolicyError
from coding_framework.evaluation import evaluate as runner
from coding_framework.evaluation.evaluate import evaluate, run_limited
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.training.reward_functions.cuda_performance_reward import (
    CUDAPerformanceReward,
)
from coding_framework.types import Extraction, Generation, Message, Role, Status
from support.made_conversations import make_task, make_verdict

pytestmark = pytest.mark.unit

ONE_TURN = ConversationConfig(max_turns=1)
TASKS = [make_task(f"task{i}") for i in range(10)]


@dataclass(frozen=True)
class Scripted:
    messages: tuple[Message, ...]
    generation: Generation
    extraction: Extraction


class CountingAgent:
    """Answers with the task's name as code, after a moment; fails for the tasks in `broken`."""

    def __init__(self, broken: frozenset[str] = frozenset()) -> None:
        self.broken = broken
        self.asked: list[str] = []
        self.now = self.most = 0

    async def answer(self, state, *, sample=0):
        self.asked.append(state.task.name)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        if state.task.name in self.broken:
            raise PolicyError("the server is gone: start it again")
        code = state.task.name
        return Scripted((), Generation(text=code), Extraction(code=code, note="one block"))


async def judge(task, code):
    return make_verdict(Status.CORRECT, 2.0, task=task.name)


async def run(agent, store=None, **kwargs):
    return await evaluate(
        "sft",
        TASKS,
        {Role.GENERATOR: agent},
        judge,
        CUDAPerformanceReward(),
        ONE_TURN,
        concurrency=4,
        store=store,
        **kwargs,
    )


async def test_conversations_run_at_once_up_to_the_limit():
    agent = CountingAgent()
    result = await run(agent)
    assert result.metrics.n == 10
    assert agent.most == 4
    assert [s.task.name for s in result.states] == [t.name for t in TASKS]


async def test_a_stopped_run_goes_on_with_what_is_missing(tmp_path):
    store = tmp_path / "sft.jsonl"
    with pytest.raises(PolicyError, match="start it again"):
        await run(CountingAgent(frozenset({"task7"})), store)
    kept = len(store.read_text().splitlines())
    assert 0 < kept < 10
    with store.open("a") as file:
        file.write('{"conversation_id": "sft/task9/0", "cut o')
    again = CountingAgent()
    seen: list[str] = []
    result = await run(again, store, on_done=lambda s: seen.append(s.task.name))
    assert len(again.asked) == 10 - kept
    assert len(seen) == result.metrics.n == 10
    assert len(store.read_text().splitlines()) == 10
    nobody = CountingAgent()
    assert (await run(nobody, store)).metrics == result.metrics
    assert nobody.asked == []


async def test_after_the_time_to_begin_those_that_began_are_finished_in_their_order(monkeypatch):
    began: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: len(began) / 1000)  # a millisecond each
    monkeypatch.setattr(runner, "time", clock)

    async def work(number: int) -> int:
        began.append(number)
        await asyncio.sleep(0.001)
        return number

    found = await run_limited({n: partial(work, n) for n in range(500)}, 2, 0.1)
    assert 100 < len(found) < 105
    assert list(found.values()) == began == list(range(len(began)))
