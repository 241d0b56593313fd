"""The samples of an evaluation: conversations about tasks, each with its record.

(task, sample) -> conversation -> best kernel, at other shapes too -> SampleRecord
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from coding_framework.evaluation.eval_run import EvalRun
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import (
    Agents,
    ConversationConfig,
    RewardFn,
    judge_or_reason,
    run_conversation,
)
from coding_framework.run.eval_options import EvalOptions
from coding_framework.store.lines import append_line
from coding_framework.types import CUDAConversationState, JudgeFn, Role

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
FIRST_CORRECT = 0.01
"""A correct turn is worth more than this under every preset."""
JUDGE_PAUSES_S = (1.0, 5.0, 25.0)
"""Before another try of a verdict that a fault of ours kept."""

Sample = tuple[CUDAConversationState, SampleRecord]


@dataclass(frozen=True)
class Wanted:
    """One sample that is asked for."""

    suite: EvalSuite
    entry: SuiteTask
    number: int
    agents: Agents

    @property
    def name(self) -> str:
        return f"{self.suite.name}/{self.entry.task.name}/{self.number}"


@dataclass(frozen=True)
class Sampling:
    """What all samples share."""

    run: EvalRun
    judge: JudgeFn
    reward: RewardFn
    options: EvalOptions
    judge_pauses_s: tuple[float, ...] = JUDGE_PAUSES_S

    async def sample(self, wanted: Wanted) -> Sample:
        """The conversation, and its record."""
        entry = wanted.entry
        config = ConversationConfig(
            max_turns=self.options.turns,
            stop_reward=FIRST_CORRECT if self.options.stop_when_correct else None,
            stop_without_code=self.options.stop_without_code,
            judge_pauses_s=self.judge_pauses_s,
        )
        state = await run_conversation(
            entry.task,
            self.run.agents(wanted.agents, wanted.number),
            self.run.judge(self.judge),
            self.reward,
            config,
            conversation_id=wanted.name,
        )
        record = sample_record(
            state,
            suite=wanted.suite.name,
            sample=wanted.number,
            level=entry.level,
            baseline=self.options.baseline,
        )
        return state, await self._elsewhere(entry, state, record)

    async def _elsewhere(
        self, entry: SuiteTask, state: CUDAConversationState, record: SampleRecord
    ) -> SampleRecord:
        """The record with what came of its kernel at other shapes, where the suite has some."""
        best = state.best_turn
        if entry.other_shapes is None or best is None or best.code is None:
            return record
        verdict, _ = await judge_or_reason(
            entry.other_shapes, best.code, self.run.judge(self.judge), self.judge_pauses_s
        )
        if verdict is None:
            return record
        found = {
            "holdout_status": verdict.status.value,
            "holdout_speedup": verdict.speedup,
            "holdout_reason": verdict.reason,
        }
        return record.model_copy(update=found)

    async def ask(self, wanted: Wanted) -> None:
        """Only the first answer, which is kept."""
        state = CUDAConversationState(conversation_id=wanted.name, task=wanted.entry.task)
        await self.run.agents(wanted.agents, wanted.number)[Role.GENERATOR].answer(state)


async def sample_all(sampling: Sampling, wanted: Sequence[Wanted]) -> list[Sample]:
    """The samples in their order, without those that the limit of time left out. Without a limit
    those begin first of which nothing is stored: a server is not idle while 10,000 are replayed.
    A viewer finds each conversation in the run's folder when it ends, the first time."""
    minutes, concurrency = sampling.options.minutes, sampling.options.concurrency
    correct, told = 0, sampling.run.folder.conversations
    finished = sampling.run.folder.records.exists()
    if not finished:
        told.unlink(missing_ok=True)  # of an earlier start

    def stored(each: Wanted) -> bool:
        return sampling.run.has_begun(each.entry.task.name, each.number)

    replayed = sum(map(stored, wanted))
    with Progress(
        "  evaluating", len(wanted), "samples", done=replayed, at_once=concurrency
    ) as progress:

        async def one(each: Wanted) -> Sample:
            nonlocal correct
            was_stored = stored(each)
            found = await sampling.sample(each)
            if not finished:
                append_line(told, found[0].model_dump_json())
            correct += found[1].correct
            progress.advance(0 if was_stored else 1, note=f"{correct} correct")
            return found

        order = wanted if minutes is not None else sorted(wanted, key=stored)
        work = {each.name: partial(one, each) for each in order}
        done = await run_limited(work, concurrency, None if minutes is None else 60 * minutes)
    return [done[each.name] for each in wanted if each.name in done]


async def ask_all(sampling: Sampling, wanted: Sequence[Wanted]) -> None:
    """The first answers of all samples."""
    concurrency = sampling.options.concurrency
    with Progress("  asking", len(wanted), "answers", at_once=concurrency) as progress:

        async def one(each: Wanted) -> None:
            await sampling.ask(each)
            progress.advance()

        await run_limited({each.name: partial(one, each) for each in wanted}, concurrency)


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
