"""What a training step was: verl's metrics and the stored rollouts, as one record.

Rewards are taken from the rollouts, not from verl's score, which is the return of a row and counts
masked rows as 0.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from coding_framework.store.conversations import read_rollouts
from coding_framework.store.records import Rollout, StepRecord
from coding_framework.training.agent_specializer import AgentSpecializer
from coding_framework.training.verl.measures import measure, rows_with_advantage
from coding_framework.training.verl.overrides import ROWS_METRIC
from coding_framework.types import ConversationTurn, Role, Status

_TIMES = {
    "gen": "rollout_s",
    "old_log_prob": "old_logprob_s",
    "ref": "reference_s",
    "update_actor": "update_s",
    "update_weights": "weight_sync_s",
    "save_checkpoint": "checkpoint_s",
    "step": "step_s",
}


def _most(metrics: Mapping[str, float], name: str) -> float | None:
    """Of all parts that report it (`actor/NAME`, `critic/NAME`); None where it is nothing, as verl
    says where there is no GPU."""
    found = [v for key, v in metrics.items() if key == name or key.endswith(f"/{name}")]
    return max(found, default=0.0) or None


def step_record(
    step: int, metrics: Mapping[str, float], rollouts_dir: Path, trained: Role | None = None
) -> StepRecord:
    """The record of a finished step."""
    rollouts = list(read_rollouts(rollouts_dir, step))
    turns = [turn for rollout in rollouts for turn in rollout.state.turns]
    judged = [t.verdict for t in turns if t.verdict is not None and t.masked is None]
    rewards = [t.reward.total for t in turns if t.reward is not None]
    logprobs = [p for t in turns for p in t.generation.logprobs]
    best = [b for b in map(_best_reward, rollouts) if b is not None]
    return StepRecord(
        step=step,
        trained=trained,
        conversations=len(rollouts),
        turns=len(turns),
        masked_turns=sum(t.masked is not None for t in turns),
        faults=sum(map(_is_fault, turns)) + sum(r.fault is not None for r in rollouts),
        rows_learnt=int(metrics.get(ROWS_METRIC, rows_with_advantage(rollouts))),
        reward_mean=_mean(rewards),
        reward_best_mean=_mean(best),
        compile_rate=_mean([v.compiled for v in judged]),
        correct_rate=_mean([v.correct for v in judged]),
        solved_rate=_mean([r.state.best_turn is not None for r in rollouts]),
        solved_error=_solved_error(rollouts),
        response_tokens=sum(turn.tokens for turn in turns),
        mean_logprob=_mean(logprobs),
        grad_norm=metrics.get("actor/grad_norm"),
        learning_rate=metrics.get("actor/lr"),
        entropy=metrics.get("actor/entropy"),
        kl=metrics.get("actor/kl_loss", metrics.get("actor/reference_kl")),
        critic_loss=metrics.get("critic/vf_loss"),
        groups_dropped=int(metrics.get("training/filter_groups/evicted_samples", 0)),
        gpu_memory_gib=_most(metrics, "perf/max_memory_allocated_gb"),
        gpu_arithmetic_share=_most(metrics, "perf/mfu/actor"),
        measures=measure(rollouts),
        roles=AgentSpecializer().metrics([rollout.state for rollout in rollouts]),
        loss=metrics.get("actor/loss"),
        ppo_kl=metrics.get("actor/ppo_kl"),
        clip_fraction=metrics.get("actor/pg_clipfrac"),
        times={
            ours: metrics[f"timing_s/{theirs}"]
            for theirs, ours in _TIMES.items()
            if f"timing_s/{theirs}" in metrics
        },
    )


def _solved_error(rollouts: Sequence[Rollout]) -> float | None:
    by_prompt: dict[str, list[bool]] = defaultdict(list)
    for rollout in rollouts:
        by_prompt[rollout.group].append(rollout.state.best_turn is not None)
    if len(by_prompt) < 2:
        return None
    rates = [sum(solved) / len(solved) for solved in by_prompt.values()]
    return statistics.stdev(rates) / math.sqrt(len(rates))


def _is_fault(turn: ConversationTurn) -> bool:
    """Whether our side failed on the turn, or a reward of the user's; `unsupported` is a gap."""
    gap = turn.verdict is not None and turn.verdict.status is Status.UNSUPPORTED
    return turn.masked is not None and not gap


def _best_reward(rollout: Rollout) -> float | None:
    return max((t.reward.total for t in rollout.state.turns if t.reward is not None), default=None)


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else None
