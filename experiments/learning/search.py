"""The search arm: of each task many candidates over several turns, a beam of parents, and the final
choice by a second verdict.

One model and one judge for all tasks. Equal kernels of a task are judged once, and on a GPU only
what the emulator found right at small sizes: at real sizes a verdict takes most of a GPU for some
seconds. A finished task is a line of `found.jsonl`, and the same command goes on with the next one.
Several processes may each take a part of the tasks: each has a file of its own, and all files
count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from plans import Searched

from coding_framework.agents.policies import OpenAIPolicy, prompt_ids
from coding_framework.agents.prompts import ANSWER_TOKENS, PromptBudget
from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.errors import OutOfTimeError
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.beam import candidates_of, confirmed
from coding_framework.orchestration.turn import ConversationConfig
from coding_framework.orchestration.workflow import CUDAKernelWorkflow
from coding_framework.run.eval_options import TASK_TOKENS
from coding_framework.store.lines import JsonlSink, parsed_lines
from coding_framework.store.model_card import answers_for, prompts_for
from coding_framework.types import (
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

AT_ONCE = 16
"""Tasks that are searched at once: while one is judged, others are written."""
AGAIN = 2
"""Judges of a second verdict, beside the others: of a task only few kernels are judged again."""
TO_THE_GPU = frozenset({Status.CORRECT, Status.UNSUPPORTED, Status.TIMEOUT})
"""What the emulator may say of a kernel that a GPU finds right."""
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


def screened(screen: JudgeFn, judge: JudgeFn) -> JudgeFn:
    """Judged by the first one, and by the second where that may say more."""

    async def judged(task: Task, code: str) -> Verdict:
        first = await screen(task, code)
        return await judge(task, code) if first.status in TO_THE_GPU else first

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
                    chosen = await confirmed(state, again)
                    took.append(time.monotonic() - began)
                    sink.write({**_row(state, chosen), "seconds": round(took[-1], 1)})
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
        """What judges candidates, and what judges the best of them again, on other inputs."""

        def made(**more: Any) -> Any:
            given = {**self._judging, "time_naive": False, **more}
            return stack.enter_context(make_judge(**given))

        kept: dict[str, Any] = {"run_folder": self._folder / "judge"}
        if self._how.judges is not None:
            kept["workers"] = self._how.judges
        judge: JudgeFn = made(**kept)
        if choose_backend(self._judging.get("backend", "auto")) == "cuda":
            small = {"backend": "emulator", "workers": max(1, cores() // 2)}
            judge = screened(made(**kept | small), judge)
        return judge, made(workers=AGAIN)

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
    """Flat numbers of a search, and of each turn's candidates the status and the speedup."""
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
    }
