"""Measures what the turns of conversations contribute: gain, repairs, variety, waste, endings.

`metrics.py` says how often a policy succeeds; this says what its turns contribute. Turns that are
masked (a fault of ours) are counted as such and left out of every rate.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import Field
from rich.table import Table

from coding_framework.evaluation.metrics import IMPROVEMENT, Proportion, proportion
from coding_framework.orchestration.turn import earlier_turn_like
from coding_framework.types import ConversationTurn, CUDAConversationState, Record


class TurnNumbers(Record):
    """All turns of one index."""

    index: int
    turns: int
    """Judged ones; the denominator of the next two."""
    compile_rate: float
    correct_rate: float
    mean_reward: float | None
    gain: float | None
    """Mean rise of the reward over the turn before, in the conversations that have both."""
    passed_by: Proportion
    """Conversations with a correct turn up to this one, of all that were judged; one that ended
    early keeps what it had."""


class ConversationMetrics(Record):
    """Maker: `conversation_metrics`. Consumers: reports, benchmarks."""

    conversations: int
    by_turn: tuple[TurnNumbers, ...]
    fixed: Proportion
    """Correct turns, of those that followed a judged and failing one with code."""
    improved: Proportion
    """Turns faster by over 1% than the best before, of those that had a correct one to improve."""
    distinct_code: Proportion
    """Different codes of a task, of the codes that its conversations gave."""
    distinct_device_code: Proportion
    """Likewise of the device code that nvcc makes of them, of those that compiled."""
    wasted: Proportion
    """Turns without code, or with code or device code that was already there."""
    masked_turns: int
    end_reasons: Mapping[str, int] = Field(default_factory=dict)
    role_tokens: Mapping[str, float] = Field(default_factory=dict)
    """Mean response tokens of a turn, by role; roles whose policy gives no tokens are left out."""


def conversation_metrics(states: Sequence[CUDAConversationState]) -> ConversationMetrics:
    """Metrics of finished conversations; any number of tasks and samples."""
    pairs = list(_pairs(states))
    judged = [t for s in states for t in s.turns if _judged(t)]
    longest = max((len(s.turns) for s in states), default=0)
    return ConversationMetrics(
        conversations=len(states),
        by_turn=tuple(_numbers(states, index) for index in range(longest)),
        fixed=proportion(
            _correct(turn)
            for before, turn in pairs
            if not _correct(before[-1]) and before[-1].code is not None
        ),
        improved=proportion(
            _speedup(turn) > IMPROVEMENT * max(map(_speedup, before))
            for before, turn in pairs
            if any(map(_correct, before))
        ),
        distinct_code=_distinct(states, lambda turn: turn.code),
        distinct_device_code=_distinct(states, _device_code),
        wasted=proportion(
            t.code is None or earlier_turn_like(t, s.turns[: t.index]) is not None
            for s in states
            for t in s.turns
            if _judged(t)
        ),
        masked_turns=sum(t.masked is not None for s in states for t in s.turns),
        end_reasons=dict(Counter(s.end_reason or "running" for s in states)),
        role_tokens=_tokens(judged),
    )


def turns_table(metrics: ConversationMetrics, title: str) -> Table:
    """The turns as a table for the terminal."""
    table = Table(title=title, title_justify="left")
    for name in ("turn", "n", "compile", "correct", "passed by now", "95%", "reward", "gain"):
        table.add_column(name, justify="right")
    for row in metrics.by_turn:
        low, high = row.passed_by.ci95
        table.add_row(
            str(row.index + 1),
            str(row.turns),
            f"{row.compile_rate:.0%}",
            f"{row.correct_rate:.0%}",
            f"{row.passed_by.rate:.0%}",
            f"{low:.0%} to {high:.0%}",
            "-" if row.mean_reward is None else f"{row.mean_reward:.3f}",
            "-" if row.gain is None else f"{row.gain:+.3f}",
        )
    return table


def _numbers(states: Sequence[CUDAConversationState], index: int) -> TurnNumbers:
    turns = [s.turns[index] for s in states if len(s.turns) > index and _judged(s.turns[index])]
    rewards = [t.reward.total for t in turns if t.reward is not None]
    gains = [
        after.reward.total - before.reward.total
        for s in states
        if 0 < index < len(s.turns)
        and (after := s.turns[index]).reward is not None
        and (before := s.turns[index - 1]).reward is not None
    ]
    return TurnNumbers(
        index=index,
        turns=len(turns),
        compile_rate=proportion(t.verdict.compiled for t in turns if t.verdict).rate,
        correct_rate=proportion(map(_correct, turns)).rate,
        mean_reward=statistics.fmean(rewards) if rewards else None,
        gain=statistics.fmean(gains) if gains else None,
        passed_by=proportion(
            any(map(_correct, s.turns[: index + 1])) for s in states if any(map(_judged, s.turns))
        ),
    )


def _pairs(
    states: Sequence[CUDAConversationState],
) -> Iterator[tuple[Sequence[ConversationTurn], ConversationTurn]]:
    """(judged turns before it, turn) for every judged turn but the first of a conversation."""
    for state in states:
        turns = [t for t in state.turns if _judged(t)]
        for i in range(1, len(turns)):
            yield turns[:i], turns[i]


def _distinct(
    states: Sequence[CUDAConversationState], key: Callable[[ConversationTurn], str | None]
) -> Proportion:
    """How many different ones there are, task by task, of all."""
    by_task: dict[str, list[str]] = defaultdict(list)
    for state in states:
        for turn in state.turns:
            value = key(turn)
            if value:
                by_task[state.task.name].append(value)
    flags = []
    for values in by_task.values():
        flags += [True] * len(set(values)) + [False] * (len(values) - len(set(values)))
    return proportion(flags)


def _device_code(turn: ConversationTurn) -> str | None:
    compiled = turn.verdict.compile if turn.verdict is not None else None
    return compiled.ptx_sha256 if compiled is not None else None


def _tokens(turns: Sequence[ConversationTurn]) -> dict[str, float]:
    lengths: dict[str, list[int]] = defaultdict(list)
    for turn in turns:
        if turn.generation.tokens:
            lengths[turn.role.value].append(turn.generation.tokens)
    return {role: round(statistics.fmean(values), 1) for role, values in lengths.items()}


def _judged(turn: ConversationTurn) -> bool:
    return turn.masked is None and turn.verdict is not None


def _correct(turn: ConversationTurn) -> bool:
    return turn.verdict is not None and turn.verdict.correct


def _speedup(turn: ConversationTurn) -> float:
    return (turn.verdict.speedup or 0.0) if turn.verdict is not None else 0.0
