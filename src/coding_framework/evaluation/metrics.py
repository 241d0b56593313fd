"""Success rates of finished conversations, with their intervals.

The unit is a conversation (one task, one sample). Rates are over the conversations that could be
judged: one in which every turn is masked says nothing of the policy, is left out and counted. The
interval treats conversations as independent, which holds for one sample a task; several samples of
a task are correlated, and the interval is then too narrow.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from coding_framework.types import CUDAConversationState, Record, Verdict

Z95 = 1.959963984540054
"""Normal quantile of a two-sided 95% interval."""

IMPROVEMENT = 1.01
"""Ratio of speedups above which a turn counts as faster than another."""

SpeedupBasis = Literal["modelled", "measured"]


class Proportion(Record):
    """A count out of n, with the Wilson 95% interval."""

    count: int
    n: int
    rate: float
    """count / n; 0 where n is 0."""
    ci95: tuple[float, float]


class StageMetrics(Record):
    """Metrics of one policy on one suite. Maker: `stage_metrics`. Consumers: summary, report."""

    label: str
    n: int
    """Judged conversations: the denominator of the rates."""
    compile_rate: float
    """Share in which a turn compiled."""
    pass_rate: float
    """Share in which a turn was correct."""
    first_turn_pass_rate: float
    """Share in which the generator's answer was correct, before any feedback."""
    median_speedup: float | None
    """Over the conversations with a correct turn, of the best one; None where there is none."""
    speedup_basis: SpeedupBasis = "modelled"
    """"modelled": emulator, over the task's naive kernel; "measured": GPU, over PyTorch eager."""
    compile: Proportion
    passed: Proportion
    first_turn_passed: Proportion
    masked_conversations: int = 0
    """Left out of n: every turn was masked."""
    masked_turns: int = 0
    turns: int = 0
    statuses: Mapping[str, int] = Field(default_factory=dict)
    """Verdicts by status, over all judged turns."""
    fixed_by_feedback: int = 0
    """Conversations whose first turn failed and a later one was correct."""
    improved_by_feedback: int = 0
    """Conversations whose first turn was correct and a later one faster (by over 1%)."""
    repeated_turns: int = 0
    """Turns that gave code of an earlier turn again: wasted."""
    end_reasons: Mapping[str, int] = Field(default_factory=dict)
    """Conversations by why they ended."""


def wilson(count: float, n: int) -> tuple[float, float]:
    """Wilson score interval of count / n; (0, 1) where n is 0. count: of a mean of n shares, their
    sum.

    Unlike the normal approximation it is right for small n and for rates near 0 and 1.
    """
    if not 0 <= count <= n:
        raise ValueError(f"count {count} of n {n}: 0 <= count <= n is needed")
    if n == 0:
        return (0.0, 1.0)
    p, z = count / n, Z95
    denominator = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / denominator
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / denominator
    low = 0.0 if count == 0 else max(0.0, centre - half)
    high = 1.0 if count == n else min(1.0, centre + half)
    return (low, high)


def proportion(flags: Iterable[bool]) -> Proportion:
    """How many of the flags are set."""
    values = list(flags)
    count, n = sum(values), len(values)
    return Proportion(count=count, n=n, rate=count / n if n else 0.0, ci95=wilson(count, n))


def stage_metrics(label: str, states: Sequence[CUDAConversationState]) -> StageMetrics:
    """Metrics of finished conversations."""
    judged = [state for state in states if _verdicts(state)]
    compiled = proportion(any(v.compiled for v in _verdicts(state)) for state in judged)
    passed = proportion(state.best_turn is not None for state in judged)
    first = proportion(_first_correct(state) for state in judged)
    best = [v for v in (_best_verdict(state) for state in judged) if v is not None]
    speedups = [v.speedup for v in best if v.speedup is not None]
    turns = [turn for state in states for turn in state.turns]
    return StageMetrics(
        label=label,
        n=len(judged),
        compile_rate=compiled.rate,
        pass_rate=passed.rate,
        first_turn_pass_rate=first.rate,
        median_speedup=statistics.median(speedups) if speedups else None,
        speedup_basis="measured" if any(_measured(v) for v in best) else "modelled",
        compile=compiled,
        passed=passed,
        first_turn_passed=first,
        masked_conversations=len(states) - len(judged),
        masked_turns=sum(turn.masked is not None for turn in turns),
        turns=len(turns),
        statuses=dict(Counter(v.status.value for state in states for v in _verdicts(state))),
        fixed_by_feedback=passed.count - first.count,
        improved_by_feedback=sum(_improved(state) for state in judged),
        repeated_turns=sum(map(_repeats, states)),
        end_reasons=dict(Counter(state.end_reason or "running" for state in states)),
    )


def chance_of(pairs: Iterable[tuple[Sequence[bool], Sequence[bool]]]) -> float:
    """Probability of as many right answers after a change as there were, or more, if it changed
    nothing. pairs: whether each answer is right, before and after, of each task.

    One-sided and exact: given how many of a task's answers are right in both together, each of its
    answers is as likely to be among the later ones (the exact test of stratified 2 x 2 tables;
    Mehta, Patel and Gray, JASA 80, 1985). It is about these tasks, not about others like them.
    """
    orders, seen = Counter({0: 1}), 0
    for before, after in pairs:
        right = sum(before) + sum(after)
        summed: Counter[int] = Counter()
        for others, number in orders.items():
            for own in range(min(right, len(after)) + 1):
                ways = math.comb(len(after), own) * math.comb(len(before), right - own)
                summed[others + own] += number * ways
        orders, seen = summed, seen + sum(after)
    return sum(ways for count, ways in orders.items() if count >= seen) / orders.total()


def clearly_above(better: Proportion, worse: Proportion) -> bool:
    """Whether the lower end of one interval lies above the upper end of the other."""
    return better.ci95[0] > worse.ci95[1]


def _verdicts(state: CUDAConversationState) -> list[Verdict]:
    return [t.verdict for t in state.turns if t.verdict is not None and t.masked is None]


def _first_correct(state: CUDAConversationState) -> bool:
    verdict = state.turns[0].verdict
    return verdict is not None and verdict.correct


def _improved(state: CUDAConversationState) -> bool:
    best = _best_verdict(state)
    first = state.turns[0].verdict
    if best is None or first is None or not first.correct:
        return False
    return (best.speedup or 0.0) > IMPROVEMENT * (first.speedup or 0.0)


def _repeats(state: CUDAConversationState) -> int:
    codes = [turn.code for turn in state.turns if turn.code is not None]
    return len(codes) - len(set(codes))


def _best_verdict(state: CUDAConversationState) -> Verdict | None:
    return state.best_turn.verdict if state.best_turn is not None else None


def _measured(verdict: Verdict) -> bool:
    return verdict.timing is not None and not verdict.timing.modelled
