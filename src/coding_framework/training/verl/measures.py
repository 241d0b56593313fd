"""Figures of a step beyond its rates: answer lengths, reward parts, tiers, statuses, latencies.

They are computed from stored rollouts alone, so they can be computed again for any run.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from coding_framework.store.records import Measures, Rollout, TierRates
from coding_framework.types import ConversationTurn, Status, Verdict

QUANTILES = (0.1, 0.5, 0.9)
LATENCY_QUANTILES = (0.5, 0.95)


def measure(rollouts: Sequence[Rollout]) -> Measures:
    """The figures of some conversations."""
    turns = [turn for rollout in rollouts for turn in rollout.state.turns]
    judged = [t.verdict for t in turns if t.verdict is not None and t.masked is None]
    lengths = [len(t.generation.response_ids) for t in turns]
    groups = _returns_by_group(rollouts)
    times = [time for rollout in rollouts for time in rollout.verdict_times]
    return Measures(
        reward_parts=_reward_parts(turns),
        tiers=_tiers(rollouts),
        speedup=_quantiles((v.speedup for v in judged if v.speedup is not None), QUANTILES),
        groups=len(groups),
        groups_without_advantage=sum(min(g) == max(g) for g in groups),
        response_tokens_mean=statistics.fmean(lengths) if lengths else None,
        response_tokens_max=max(lengths, default=0),
        cut_share=_share(t.generation.finish_reason == "length" for t in turns),
        turns_mean=len(turns) / len(rollouts) if rollouts else None,
        cheats=sum(v.status is Status.CHEATING for v in judged),
        rejected=sum(v.status is Status.REJECTED for v in judged),
        statuses=Counter(t.verdict.status.value for t in turns if t.verdict is not None),
        verdict_s=_quantiles((t.wall_s for t in times), LATENCY_QUANTILES),
        verdict_wait_s=_quantiles((t.waited_s for t in times), LATENCY_QUANTILES),
    )


def rows_with_advantage(rollouts: Sequence[Rollout]) -> int:
    """Rows in groups (prompt, role, turn) whose known returns differ."""
    return sum(len(g) for g in _returns_by_group(rollouts) if max(g) > min(g))


def _returns_by_group(rollouts: Sequence[Rollout]) -> list[list[float]]:
    groups: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for rollout in rollouts:
        for turn, value in zip(rollout.state.turns, rollout.returns, strict=True):
            if value is not None:
                groups[rollout.group, turn.role, turn.index].append(value)
    return list(groups.values())


def _reward_parts(turns: Iterable[ConversationTurn]) -> dict[str, float]:
    rewards = [t.reward for t in turns if t.reward is not None]
    sums: dict[str, float] = defaultdict(float)
    for reward in rewards:
        for part in reward.parts:
            sums[part.name] += part.value
    return {name: total / len(rewards) for name, total in sums.items()}


def _tiers(rollouts: Sequence[Rollout]) -> dict[str, TierRates]:
    by_tier: dict[int, list[Verdict]] = defaultdict(list)
    for rollout in rollouts:
        for turn in rollout.state.turns:
            if turn.verdict is not None and turn.masked is None:
                by_tier[rollout.state.task.tier].append(turn.verdict)
    return {
        str(tier): TierRates(
            turns=len(verdicts),
            compile_rate=_share(v.compiled for v in verdicts) or 0.0,
            correct_rate=_share(v.correct for v in verdicts) or 0.0,
        )
        for tier, verdicts in sorted(by_tier.items())
    }


def _share(flags: Iterable[bool]) -> float | None:
    found = list(flags)
    return sum(found) / len(found) if found else None


def _quantiles(values: Iterable[float], shares: Sequence[float]) -> dict[str, float]:
    """The values at these shares of the sorted ones (nearest rank); {} where there is none."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        f"p{round(100 * share)}": ordered[max(0, math.ceil(share * len(ordered)) - 1)]
        for share in shares
    }
