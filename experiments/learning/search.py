"""The search arm: of each task many candidates over several turns, a beam of parents, and the final
choice by a second verdict.

One model and one judge for all tasks. Equal kernels of a task are judged once, and on a GPU only
what the emulator found right at small sizes, and at real size alone: there a verdict takes most of
a GPU for some seconds. So is the second verdict, of judges with other inputs. A finished task is a
line of `found.jsonl`, and the same command goes on with the next one. A task of whose second
verdicts one was not made, by a fault of ours, is not finished. Several processes may each
take a part of the tasks: each has a file of its own, and all files count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from plans import Searched

from coding_framework.agents.policies import OpenAIPolicy, prompt_ids
from coding_framework.agents.prompts import ANSWER_TOKENS, PromptBudget
from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.errors import OutOfTimeError
from coding_framework.evaluation.metrics import wilson
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.beam import candidates_of, confirmed
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.orchestration.workflow import CUDAKernelWorkflow
from coding_framework.run.eval_options import TASK_TOKENS
from coding_framework.store.events import log
from coding_framework.store.lines import JsonlSink, parsed_lines
from coding_framework.store.model_card import answers_for, prompts_for
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    JudgeFn,
    Message,
    Role,
    SamplingParams,
    Status,
    Task,
    Verdict,
)
from coding_framework.wiring import cores, make_agents, make_judge, make_policies, make_reward

AT_ONCE = 24
"""Tasks that are searched at once: while one is judged, others are written. With 16 two thirds of
the judges on a GPU had no work, and the other GPU wrote for three quarters of the time."""
AGAIN = 3
"""Judges of a second verdict on a GPU, beside the others. Of a task four kernels are judged again:
two judges, who had the emulator judge small sizes meanwhile, were what 36 tasks waited for."""
BEYOND = frozenset({Status.UNSUPPORTED, Status.TIMEOUT})
"""What the emulator may say, beside correct, of a kernel that a GPU finds right."""
FAILURES = 3
"""Wrong kernels that are kept of a task which is not solved."""
Counter = Callable[[tuple[Message, ...]], int]


def search(
    model: Path,
    tasks: Sequence[Task],
    how: Searched,
    *,
    judge: dict[str, Any],
    folder: Path,
    seed: int,
    deadline: float | None,
    max_new_tokens: int | None = None,
    server: str | None = None,
    part: tuple[int, int] = (1, 1),
) -> list[dict[str, Any]]:
    """What was found of each task. deadline: of time.monotonic; after it no task begins. server: an
    address where `model` answers; None: in this process. part: (2, 3) searches the second of three
    parts. Raises OutOfTimeError where tasks are left, of whichever part."""
    folder.mkdir(parents=True, exist_ok=True)
    number, of = part
    mine = tasks[number - 1 :: of]
    done = _done(folder)
    open_tasks = [task for task in mine if task.name not in done]
    if open_tasks:
        found = _Search(model, how, judge, folder, seed, max_new_tokens, server)
        with JsonlSink(
            folder / (f"found.{number}of{of}.jsonl" if of > 1 else "found.jsonl")
        ) as sink:
            asyncio.run(found.all(open_tasks, sink, deadline, len(mine)))
        done = _done(folder)
    left = sum(task.name not in done for task in tasks)
    if left:
        raise OutOfTimeError(f"the search has {left} tasks left: the same command goes on")
    return [done[task.name] for task in tasks]


def told(tasks: Sequence[Task], folder: Path) -> dict[str, Any]:
    """What was found of a suite whose tasks were searched in this order, also where the time has
    ended. cut: tasks before the last one that is done whose search it ended, the slow ones;
    at_least counts them as not solved. one_turn and one_answer: the fastest candidate of the first
    turn, and the mean of all of them, by one verdict each."""
    done = _done(folder)
    places = [i for i, task in enumerate(tasks) if task.name in done]
    rows = [done[tasks[i].name] for i in places]
    cut = places[-1] + 1 - len(rows) if rows else 0
    speeds = [row["speedup"] if row["correct"] else None for row in rows]
    fastest = [_best(c for turn in row["turns"] for c in turn) for row in rows]
    of_first_turn = [[c for turn in row["turns"][:1] for c in turn] for row in rows]
    return {
        "tasks": len(rows), "cut": cut, "of": len(tasks),
        "candidates": sum(row["candidates"] for row in rows),
        "tokens": sum(row["tokens"] for row in rows),
        "seconds_of_tasks": round(sum(row["seconds"] for row in rows)),
        **_shares(speeds, len(rows)),
        "at_least": _shares(speeds, len(rows) + cut),
        "one_turn": _shares([_best(turn) for turn in of_first_turn], len(rows)),
        "one_answer": _means([_each(turn) for turn in of_first_turn]),
        "fastest_in_turn": [
            sum(best is not None and _first_turn(row, best) == turn
                for row, best in zip(rows, fastest, strict=True))
            for turn in range(max((len(row["turns"]) for row in rows), default=0))
        ],
    }  # fmt: skip


def _each(candidates: Iterable[tuple[str, float | None]]) -> list[float | None]:
    """The speedup of each that is right, 0 where it has none; None: it is wrong."""
    return [(speed or 0.0) if status == Status.CORRECT else None for status, speed in candidates]


def _best(candidates: Iterable[tuple[str, float | None]]) -> float | None:
    return max((s for s in _each(candidates) if s is not None), default=None)


def _first_turn(row: dict[str, Any], best: float) -> int:
    """Which turn has a candidate that is as fast, within 1%."""
    found = [_best(turn) for turn in row["turns"]]
    return next(i for i, fast in enumerate(found) if fast is not None and 1.01 * fast >= best)


def _counts(speedups: Sequence[float | None]) -> dict[str, int]:
    faster = {f"fast_{x:g}": sum((s or 0.0) > x for s in speedups) for x in (1.0, 1.05, 2.0)}
    return {"correct": sum(s is not None for s in speedups), **faster}


def _shares(speedups: Sequence[float | None], of: int) -> dict[str, Any]:
    """Of so many tasks the share that is right and faster than eager, with Wilson's interval."""
    counts = _counts(speedups)
    ends = {name: [round(end, 3) for end in wilson(n, of)] for name, n in counts.items()}
    return {**{name: round(n / of, 3) if of else 0.0 for name, n in counts.items()}, "ci95": ends}


def _means(tasks: Sequence[Sequence[float | None]]) -> dict[str, float]:
    """The same shares of each task's candidates, averaged over tasks."""
    each = [{k: n / len(of) for k, n in _counts(of).items()} for of in tasks if of]
    return {name: round(mean(one[name] for one in each), 3) for name in (each or [{}])[0]}


def screened(screen: JudgeFn, real_size: JudgeFn, whole: JudgeFn) -> JudgeFn:
    """Judged by the first one, by the second what that finds right, and by the third what is too
    much for it."""

    async def judged(task: Task, code: str) -> Verdict:
        first = await screen(task, code)
        if first.status in BEYOND:
            return await whole(task, code)
        return await real_size(task, code) if first.correct else first

    return judged


def _done(folder: Path) -> dict[str, dict[str, Any]]:
    """What was found, by task."""
    rows = (row for file in folder.glob("found*.jsonl") for row in parsed_lines(file, json.loads))
    return {row["task"]: row for row in rows}


class _Search:
    def __init__(
        self, model: Path, how: Searched, judge: dict[str, Any], folder: Path, seed: int,
        tokens: int | None, server: str | None,
    ) -> None:  # fmt: skip
        self._model, self._how, self._judging, self._seed = model, how, judge, seed
        self._folder = folder
        self._server = server
        self._prompts = prompts_for(model, is_adapter=False)
        self._tokens = tokens or answers_for(model) or ANSWER_TOKENS[self._prompts]

    async def all(
        self, tasks: Sequence[Task], sink: JsonlSink, deadline: float | None, of: int
    ) -> None:
        with contextlib.ExitStack() as stack:
            policy, count = self._policy(stack)
            judge, again = self._judges(stack)
            budget = PromptBudget(TASK_TOKENS + self._tokens, count)
            sampling = SamplingParams(
                max_new_tokens=self._tokens, temperature=self._how.temperature, seed=self._seed
            )
            agents = make_agents(policy, sampling, budget=budget, prompts=self._prompts, redraws=1)
            progress = stack.enter_context(Progress("search", of, "tasks", done=of - len(tasks)))
            free = asyncio.Semaphore(AT_ONCE)
            took: list[float] = []

            async def one(task: Task) -> None:
                async with free:
                    began = time.monotonic()
                    if deadline is not None and began + mean(took or [0.0]) >= deadline:
                        return
                    workflow = CUDAKernelWorkflow(
                        agents, judge, make_reward(),
                        ConversationConfig(max_turns=self._how.turns, stop_reward=None),
                        candidates=self._how.candidates, beam=self._how.beam,
                    )  # fmt: skip
                    state = None
                    async with workflow:
                        async for event in workflow.stream(task, conversation_id=task.name):
                            state = event.state or state
                    assert state is not None, "a stream ends with the conversation"
                    searched = time.monotonic()
                    second = await confirmed(state, again)
                    ended = time.monotonic()
                    took.append(ended - began)
                    if second.lost:
                        log.warning("task_not_counted", task=task.name, why=second.lost)
                        return
                    seconds = {"seconds": ended - began, "seconds_again": ended - searched}
                    rounded = {name: round(s, 1) for name, s in seconds.items()}
                    sink.write(_row(state, second.fastest) | rounded)
                    progress.advance()

            left_s = None if deadline is None else deadline - time.monotonic()
            limit = asyncio.timeout(left_s)
            try:
                async with limit:
                    await asyncio.gather(*map(one, tasks))
            except TimeoutError:
                if not limit.expired():  # it is somebody else's
                    raise
                # what has begun by then is searched anew

    def _judges(self, stack: contextlib.ExitStack) -> tuple[JudgeFn, JudgeFn]:
        """What judges candidates, and what judges the best of them again, on other inputs. Of three
        quarters of the cores the emulator has one part for the latter and three for the former,
        which were busy for 80% of the time with half of them."""
        kept: dict[str, Any] = {"run_folder": self._folder / "judge"}
        again = max(1, 3 * cores() // 16)
        return (
            self._judge(stack, self._how.judges, 3 * again, kept),
            self._judge(stack, AGAIN, again, {}),
        )

    def _judge(
        self, stack: contextlib.ExitStack, workers: int | None, screening: int, kept: dict[str, Any]
    ) -> JudgeFn:
        """workers: None: as the plan has it. screening: those of the emulator beside a GPU."""

        def made(workers: int | None, **more: Any) -> Any:
            given = {**self._judging, "time_naive": False, **kept, **more}
            return stack.enter_context(
                make_judge(**given if workers is None else {**given, "workers": workers})
            )

        if choose_backend(self._judging.get("backend", "auto")) != "cuda":
            return made(workers)
        screen, real_size = made(screening, backend="emulator"), made(workers, small_shapes=False)
        return screened(screen, real_size, whole=made(1))

    def _policy(self, stack: contextlib.ExitStack) -> tuple[Any, Counter]:
        """What answers, and what counts a prompt's tokens."""
        if self._server is None:
            policy = make_policies(self._model, stack, max_context=TASK_TOKENS + 2 * self._tokens)[
                Role.GENERATOR
            ]
            return policy, policy.count
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self._model)
        asked = OpenAIPolicy(self._server, str(self._model))
        return asked, lambda messages: len(prompt_ids(tokenizer, messages))


def _row(state: CUDAConversationState, chosen: Any) -> dict[str, Any]:
    """Flat numbers of a search, of each turn's candidates the status and the speedup, and of a task
    that is not solved some of its wrong kernels, the most frequent kinds first."""
    verdict = chosen.verdict if chosen is not None else None
    tried = candidates_of(state)
    turns = [[turn, *turn.alternatives] for turn in state.turns]
    return {
        "task": state.task.name,
        "family": state.task.family,
        "candidates": len(tried),
        "masked": sum(t.masked is not None for turn in turns for t in turn),
        "tokens": sum(t.tokens for turn in turns for t in turn),
        "correct_candidates": sum(t.verdict is not None and t.verdict.correct for t in tried),
        "turns": [
            [[t.verdict.status, t.verdict.speedup] for t in turn if t.verdict is not None]
            for turn in turns
        ],
        "correct": verdict is not None,
        "speedup": verdict.speedup if verdict is not None else None,
        "code": chosen.code if chosen is not None else None,
        "failures": [] if verdict is not None else _failures(t for turn in turns for t in turn),
    }


def _failures(turns: Iterable[ConversationTurn]) -> list[dict[str, Any]]:
    """One of each kind: a status, and where the reason says so a shape or a compiler's message."""
    kinds: dict[tuple[str, str], list[ConversationTurn]] = {}
    for turn in turns:
        if turn.verdict is not None:
            verdict = turn.verdict
            kinds.setdefault((verdict.status, verdict.reason.split(":")[-1][:40]), []).append(turn)
    found = sorted(kinds.values(), key=len, reverse=True)[:FAILURES]
    return [
        {"count": len(of), "status": verdict.status, "reason": verdict.reason, "code": of[0].code}
        for of in found
        if (verdict := of[0].verdict) is not None
    ]
