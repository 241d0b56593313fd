"""Runs a policy's conversations on a suite of tasks, many at once, and keeps each when it ends.

Generation and judging overlap: while one conversation waits for its verdict others generate, and a
batching policy answers those that wait together. A run that was killed goes on with the
conversations that are not in its file yet.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from coding_framework.evaluation.eval_run import EvalRun
from coding_framework.evaluation.metrics import StageMetrics, stage_metrics
from coding_framework.orchestration.turn import (
    Agents,
    ConversationConfig,
    RewardFn,
    run_conversation,
)
from coding_framework.store.conversations import read_states
from coding_framework.store.lines import JsonlSink
from coding_framework.types import CUDAConversationState, JudgeFn, Record, Task

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Evaluation(Record):
    """Metrics and the conversations that they come from."""

    metrics: StageMetrics
    states: tuple[CUDAConversationState, ...]


async def evaluate(
    label: str,
    tasks: Sequence[Task],
    agents: Agents,
    judge: JudgeFn,
    reward: RewardFn,
    conversation: ConversationConfig,
    *,
    samples: int = 1,
    concurrency: int = 16,
    store: Path | None = None,
    run: EvalRun | None = None,
    on_done: Callable[[CUDAConversationState], None] | None = None,
    on_begin: Callable[[], None] | None = None,
) -> Evaluation:
    """Run every task's conversations and sum them up, first samples of all tasks first.

    samples: of each task. concurrency: conversations at once; the policy's batch plus the judge's
    workers keeps both busy.
    store: a JSON-lines file of finished conversations; those already in it are not run again.
    run: keeps every answer and verdict, so that a stopped run goes on inside its conversations.
    on_done: called with each conversation, stored ones first. on_begin: before the first new one.
    Raises what the policy raises.
    """
    wanted = {
        f"{label}/{task.name}/{sample}": (task, sample)
        for sample in range(samples)
        for task in tasks
    }
    finished = read_states(store, wanted) if store is not None else {}
    for state in finished.values():
        if on_done is not None:
            on_done(state)
    if on_begin is not None:
        on_begin()
    sink = JsonlSink(store) if store is not None else None

    async def converse(name: str, task: Task, sample: int) -> CUDAConversationState:
        state = await run_conversation(
            task,
            agents if run is None else run.agents(agents, sample),
            judge if run is None else run.judge(judge),
            reward,
            conversation,
            conversation_id=name,
        )
        if sink is not None:
            sink.write_line(state.model_dump_json())
        if on_done is not None:
            on_done(state)
        return state

    left = {
        name: partial(converse, name, *what)
        for name, what in wanted.items()
        if name not in finished
    }
    try:
        finished |= await run_limited(left, concurrency)
    finally:
        if sink is not None:
            sink.close()
    states = tuple(finished[name] for name in wanted if name in finished)
    return Evaluation(metrics=stage_metrics(label, states), states=states)


async def run_limited(
    work: Mapping[K, Callable[[], Awaitable[T]]],
    concurrency: int,
    begin_within_s: float | None = None,
) -> dict[K, T]:
    """What each piece of work gives, so many at once, begun in their order. Those that have not
    begun within the time are not in the result; those that have begun go on to their end, for to
    cut them off would leave out the long ones. The first error ends them all and is raised."""
    limit = asyncio.Semaphore(concurrency)
    last_begin = time.monotonic() + (math.inf if begin_within_s is None else begin_within_s)
    done: dict[K, T] = {}

    async def one(key: K, start: Callable[[], Awaitable[T]]) -> None:
        async with limit:
            if time.monotonic() <= last_begin:
                done[key] = await start()

    try:
        async with asyncio.TaskGroup() as group:
            for key, start in work.items():
                group.create_task(one(key, start))
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return done


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group: one failed policy fails many conversations the same way."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
