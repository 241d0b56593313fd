"""The fastest verified kernel for a task: several conversations at a time, each judged.

A candidate's conversation is driven by the one turn loop (`orchestration.turn`). Guaranteed: what
is given back as verified has a `correct` verdict of this judge; a fault of ours makes a candidate
`fault`, never wrong; at the end of the budget, what is judged by then counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from coding_framework.deployment.fair_queue import AHEAD, FairQueue
from coding_framework.errors import PolicyError
from coding_framework.orchestration.turn import (
    Agent,
    ConversationConfig,
    ask,
    end_reason,
    extended,
    judge_answer,
)
from coding_framework.types import (
    BackendName,
    ConversationTurn,
    CUDAConversationState,
    JudgeFn,
    Role,
    Status,
    Task,
    Verdict,
)

_RETRY_S = 1.0


class JudgeQueue:
    """A judge whose callers wait in a line each, and have their turns in round robin."""

    def __init__(self, judge: JudgeFn, workers: int, most_waiting: int | None = None) -> None:
        """most_waiting: verdicts of one caller that may wait before it is told to come later."""
        self._judge = judge
        self.most_waiting = most_waiting if most_waiting is not None else 4 * workers
        self._turns = FairQueue(AHEAD * workers)
        self.on_verdict: Callable[[Verdict, float], None] = lambda verdict, seconds: None

    @property
    def running(self) -> int:
        """Verdicts that were asked for and are not there."""
        return self._turns.taken + self._turns.waiting

    @property
    def waiting(self) -> int:
        """Of all callers."""
        return self._turns.waiting

    def waiting_of(self, caller: str) -> int:
        return self._turns.waiting_of(caller)

    def full(self, caller: str) -> bool:
        return self.waiting_of(caller) >= self.most_waiting

    def of(self, caller: str) -> JudgeFn:
        """The judge, for one caller."""

        async def judge(task: Task, code: str) -> Verdict:
            return await self._in_turn(caller, task, code)

        return judge

    async def _in_turn(self, caller: str, task: Task, code: str) -> Verdict:
        started = time.monotonic()
        async with self._turns.turn(caller):
            verdict = await self._judge(task, code)
        self.on_verdict(verdict, time.monotonic() - started)
        return verdict


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for."""

    candidates: int
    turns: int
    budget_s: float
    min_speedup: float | None = None
    """Reached by one candidate, it ends all. None: all turns are used."""


@dataclass(slots=True)
class Candidate:
    """One conversation and how far it came."""

    state: CUDAConversationState
    failure: str | None = None
    """Our fault that ended it."""

    @property
    def last(self) -> ConversationTurn | None:
        return self.state.turns[-1] if self.state.turns else None

    @property
    def best(self) -> ConversationTurn | None:
        """Its fastest correct turn by time."""
        correct = [t for t in self.state.turns if t.verdict is not None and t.verdict.correct]
        return min(correct, key=_kernel_ms, default=None)

    def told(self) -> dict[str, Any]:
        """For the caller: status, reason, speedup."""
        turn = self.best or self.last
        verdict = turn.verdict if turn is not None else None
        if verdict is not None and (self.failure is None or verdict.correct):
            status, reason = verdict.status.value, verdict.reason
        elif self.failure is not None or (turn is not None and turn.masked):
            status, reason = "fault", self.failure or (turn.masked if turn else "") or ""
        else:
            status, reason = "unfinished", "the time was over before its verdict"
        return {
            "status": status,
            "reason": reason[:500],
            "speedup": verdict.speedup if verdict is not None else None,
        }


@dataclass(slots=True)
class Search:
    """A running or finished search for a kernel."""

    task: Task
    wanted: Wanted
    candidates: list[Candidate]
    started: float = field(default_factory=time.monotonic)
    judged: int = 0
    timed_out: bool = False
    generate_s: float = 0.0
    """Of the candidate whose answers took longest."""
    judge_s: float = 0.0
    """Of the candidate whose verdicts took longest, with their waiting."""

    @property
    def best(self) -> ConversationTurn | None:
        """The fastest verified turn of all; None where none is verified."""
        found = [c.best for c in self.candidates]
        return min((t for t in found if t is not None), key=_kernel_ms, default=None)

    @property
    def attempt(self) -> ConversationTurn | None:
        """The turn to show where none is verified: the one that came furthest."""
        turns = [t for c in self.candidates for t in c.state.turns if t.code is not None]
        return max(turns, key=_came_far, default=None)

    @property
    def cheated(self) -> bool:
        """Whether any verdict was `cheating`."""
        return any(
            t.verdict is not None and t.verdict.status is Status.CHEATING
            for c in self.candidates
            for t in c.state.turns
        )

    @property
    def all_failed(self) -> bool:
        """Whether every candidate ended by a fault of ours, so that nothing is known."""
        return all(c.told()["status"] == "fault" for c in self.candidates)

    def progress(self) -> str:
        """`judged 3/8, best 1.9x`."""
        total = self.wanted.candidates * self.wanted.turns
        best = self.best
        speedup = best.verdict.speedup if best is not None and best.verdict is not None else None
        so_far = "none verified" if best is None else "verified"
        return f"judged {self.judged}/{total}, " + (f"best {speedup:.1f}x" if speedup else so_far)


def new_search(task: Task, wanted: Wanted) -> Search:
    """A search that has not begun."""
    states = (
        CUDAConversationState(conversation_id=uuid4().hex, task=task)
        for _ in range(wanted.candidates)
    )
    return Search(task, wanted, [Candidate(state) for state in states])


async def run_search(
    found: Search, agents: Mapping[Role, Agent], judge: JudgeFn, backend: BackendName
) -> None:
    """Run it; what comes out stands in `found` at once. Cancelled, it leaves nothing running."""
    config = ConversationConfig(
        max_turns=found.wanted.turns, judge_pauses_s=(_RETRY_S,), backend=backend
    )
    tasks = [
        asyncio.create_task(_converse(found, index, agents, judge, config))
        for index in range(found.wanted.candidates)
    ]
    try:
        async with asyncio.timeout(found.wanted.budget_s):
            for next_done in asyncio.as_completed(tasks):
                await next_done
                if _reached(found):
                    break
    except TimeoutError:
        found.timed_out = True
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _converse(
    found: Search,
    index: int,
    agents: Mapping[Role, Agent],
    judge: JudgeFn,
    config: ConversationConfig,
) -> None:
    candidate = found.candidates[index]
    generate_s = judge_s = 0.0
    while end_reason(candidate.state, config) is None and not _reached(found):
        started = time.monotonic()
        try:
            answer = await ask(candidate.state, agents, sample=index)
        except PolicyError as e:
            candidate.failure = str(e)
            return
        generate_s += time.monotonic() - started
        found.generate_s = max(found.generate_s, generate_s)
        started = time.monotonic()
        turn = await judge_answer(candidate.state, answer, judge, config)
        judge_s += time.monotonic() - started
        found.judge_s = max(found.judge_s, judge_s)
        candidate.state = extended(candidate.state, turn)
        found.judged += 1


def _reached(found: Search) -> bool:
    wanted, best = found.wanted.min_speedup, found.best
    if wanted is None or best is None or best.verdict is None:
        return False
    return (best.verdict.speedup or 0.0) >= wanted


def _kernel_ms(turn: ConversationTurn) -> float:
    timing = turn.verdict.timing if turn.verdict is not None else None
    return timing.kernel_ms if timing is not None else float("inf")


def _came_far(turn: ConversationTurn) -> tuple[bool, int]:
    verdict = turn.verdict
    if verdict is None:
        return (False, 0)
    return (verdict.compiled, sum(t.passed for t in verdict.tests))


Basis = Literal["measured", "modelled"]


def basis_of(verdict: Verdict) -> Basis | None:
    """Where the speedup of a verdict comes from."""
    if verdict.timing is None:
        return None
    return "modelled" if verdict.timing.modelled else "measured"
