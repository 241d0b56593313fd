"""Beam search over kernels: several parents go on, and not the best one alone.

    all candidates so far -> the best ones with different device code -> each is asked about alone

Functions of a conversation, pure but `confirmed`, which asks a judge. A conversation's
turns keep the candidates that did not go on as their `alternatives`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from coding_framework.orchestration.turn import device_code, judge_or_reason, nearness
from coding_framework.types import ConversationTurn, CUDAConversationState, JudgeFn


def candidates_of(state: CUDAConversationState) -> list[ConversationTurn]:
    """All answers of a conversation that hold code and were judged, the chosen one of each turn
    before its alternatives."""
    every = [t for turn in state.turns for t in (turn, *turn.alternatives)]
    return [t for t in every if t.code is not None and t.verdict is not None and t.masked is None]


def ranked(state: CUDAConversationState) -> list[ConversationTurn]:
    """Candidates with different device code, the best first: correct ones by speedup, then the
    others by how near to right they are."""
    found: dict[str, ConversationTurn] = {}
    for turn in sorted(candidates_of(state), key=_rank, reverse=True):
        found.setdefault(device_code(turn) or turn.code or "", turn)
    return list(found.values())


def parent_of(state: CUDAConversationState, sample: int, beam: int) -> CUDAConversationState:
    """The conversation as the asker of a sample sees it: of the `beam` best candidates so far one
    alone, in turn. Without any candidate: as it is."""
    parents = ranked(state)[:beam]
    if not parents:
        return state
    parent = parents[sample % len(parents)]
    alone = parent.model_copy(update={"index": 0, "alternatives": (), "notes": ()})
    return state.model_copy(update={"turns": (alone,)})


MOST_CONFIRMED = 4
"""Kernels that are judged again, side by side."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What second verdicts say. Maker: `confirmed`."""

    fastest: ConversationTurn | None
    """With its second verdict; None where no kernel is correct twice."""
    lost: tuple[str, ...] = ()
    """Why second verdicts were not made, by a fault of ours each: those kernels may be the fastest
    ones, or the only right ones."""


async def confirmed(state: CUDAConversationState, judge: JudgeFn) -> Confirmed:
    """The fastest correct candidate, by a second verdict on other inputs: the best of many times is
    partly luck, and so is the best of many verdicts."""
    correct = [t for t in ranked(state) if t.verdict is not None and t.verdict.correct]
    tried = correct[:MOST_CONFIRMED]
    found = await asyncio.gather(
        *(judge_or_reason(state.task, turn.code or "", judge) for turn in tried)
    )
    again = [
        turn.model_copy(update={"verdict": verdict})
        for turn, (verdict, _) in zip(tried, found, strict=True)
        if verdict is not None and verdict.correct
    ]
    lost = tuple(reason for verdict, reason in found if verdict is None and reason is not None)
    return Confirmed(max(again, key=_speedup, default=None), lost)


def _speedup(turn: ConversationTurn) -> float:
    return (turn.verdict.speedup or 0.0) if turn.verdict is not None else 0.0


def _rank(turn: ConversationTurn) -> tuple[float, tuple[bool, bool, float, float]]:
    verdict = turn.verdict
    fast = (verdict.speedup or 0.0) if verdict is not None and verdict.correct else -1.0
    return fast, nearness(turn)
