"""A task solved in parts: a conversation about each, and their kernels joined and judged as one.

    task -> parts (data/parts) -> a conversation each -> one of which nothing is right is parted
    again, each operation for itself -> the fastest right kernels in one file
    -> the whole's verdict

What a verdict promises of the whole rests on the whole's own draws alone: a part that is judged too
kindly is found out there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from coding_framework.data.parts.join import joined, require_joinable, takes
from coding_framework.data.parts.pieces import Part, finer, parted
from coding_framework.data.parts.whole import Whole, whole_of
from coding_framework.orchestration.beam import ranked
from coding_framework.orchestration.turn import judge_answer
from coding_framework.types import (
    AgentAnswer,
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Generation,
    JudgeFn,
    Task,
)

PARTS_AT_ONCE = 4
"""Conversations side by side."""
Converse = Callable[[Task, str], Awaitable[CUDAConversationState]]
"""A conversation about a task, by its name: the same one goes on."""


@dataclass(frozen=True, slots=True)
class Solved:
    """What came of a part."""

    part: Part
    number: int
    of: int
    """How many parts there are."""
    kernel: ConversationTurn | None
    """The fastest that is right and can be joined; None where there is none."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Apart:
    """A task that was taken apart."""

    whole: Whole
    parts: Sequence[Part]


def take_apart(task: Task) -> Apart:
    """Runs the task's reference, in this process. Raises UsageError where it has no parts, or none
    that could be joined."""
    whole = whole_of(task)
    parts = parted(whole)
    require_joinable(whole, parts)
    return Apart(whole, parts)


async def solve_in_parts(
    apart: Apart, converse: Converse, judge: JudgeFn, told: Callable[[Solved], None],
    conversation_id: str, at_once: int = PARTS_AT_ONCE,
) -> CUDAConversationState:  # fmt: skip
    """The conversation of one turn that has the joined kernel and its verdict; without a turn where
    a part was not solved."""
    whole, parts = apart.whole, apart.parts
    found: dict[str, Solved] = {}
    await _solve(parts, found, converse, told, at_once)
    failed = [part for part in parts if found[part.key].kernel is None]
    if failed:
        parts = finer(whole, failed)
        await _solve(parts, found, converse, told, at_once)
    tokens = sum(one.tokens for one in found.values())
    state = CUDAConversationState(conversation_id=conversation_id, task=whole.task)
    kernels = [found[part.key].kernel for part in parts]
    if not all(kernels):
        return state.model_copy(update={"end_reason": "a part was not solved"})
    return await _joined(state, whole, parts, [k.code or "" for k in kernels if k], tokens, judge)


async def _solve(
    parts: Sequence[Part], found: dict[str, Solved], converse: Converse,
    told: Callable[[Solved], None], at_once: int,
) -> None:  # fmt: skip
    """A conversation about each part that is not known yet; equal ones share one."""
    room = asyncio.Semaphore(at_once)
    wanted = {part.key: (number, part) for number, part in reversed([*enumerate(parts, 1)])}

    async def one(number: int, part: Part) -> None:
        async with room:
            state = await converse(part.task, part.key)
        tokens = sum(t.tokens for turn in state.turns for t in (turn, *turn.alternatives))
        found[part.key] = Solved(
            part, number, len(parts), best_of(state, partial(takes, part)), tokens
        )
        told(found[part.key])

    new = [pair for key, pair in wanted.items() if key not in found]
    await asyncio.gather(*(one(*pair) for pair in sorted(new, key=lambda pair: pair[0])))


def best_of(state: CUDAConversationState, fits: Callable[[str], bool]) -> ConversationTurn | None:
    """The fastest right kernel of a conversation that fits."""
    right = (t for t in ranked(state) if t.verdict is not None and t.verdict.correct)
    return next((t for t in right if fits(t.code or "")), None)


async def _joined(
    state: CUDAConversationState, whole: Whole, parts: Sequence[Part], kernels: Sequence[str],
    tokens: int, judge: JudgeFn,
) -> CUDAConversationState:  # fmt: skip
    code = joined(whole, parts, kernels)
    answer = AgentAnswer(
        messages=(),
        generation=Generation(text=code, counted=tokens),
        extraction=Extraction(code=code, note=f"joined of the kernels of {len(parts)} parts"),
    )
    turn = await judge_answer(state, answer, judge)
    return state.model_copy(update={"turns": (turn,), "end_reason": "joined"})
