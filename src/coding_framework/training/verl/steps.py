"""The records of a run's steps and validations, and the best policy, kept beyond its checkpoint.

A step's record is made of verl's metrics and the stored rollouts. Rewards are taken from the
rollouts, not from verl's score, which is the return of a row and counts masked rows as 0; so are
answer lengths, tiers, statuses and latencies, so that they can be computed again for any run.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from coding_framework.paths import write_atomic
from coding_framework.store import checkpoints
from coding_framework.store.conversations import read_rollouts
from coding_framework.store.events import log
from coding_framework.store.folder import AttemptFolder, RLFolder, rollouts_file
from coding_framework.store.records import Measures, Rollout, StepRecord, TierRates, Validation
from coding_framework.store.training_log import (
    read_metrics,
    read_steps,
    read_validations,
    write_steps,
    write_validations,
)
from coding_framework.training.agent_specializer import AgentSpecializer
from coding_framework.training.verl.overrides import ROWS_METRIC
from coding_framework.types import ConversationTurn, Role, Status, Verdict

LEAST_JUDGED = 0.9
"""Share of a validation's conversations without which it says nothing. Where a run is ended while
it validates, some are not begun, and the judge is taken from others."""
_TIMES = {
    "gen": "rollout_s",
    "old_log_prob": "old_logprob_s",
    "ref": "reference_s",
    "update_actor": "update_s",
    "update_weights": "weight_sync_s",
    "save_checkpoint": "checkpoint_s",
    "step": "step_s",
}
QUANTILES = (0.1, 0.5, 0.9)
LATENCY_QUANTILES = (0.5, 0.95)


class RunSteps:
    """The steps of the run in a folder."""

    def __init__(self, run: RLFolder, trained: Role | None, *, validation_tasks: int = 0) -> None:
        """trained: the role that learns; None: all. validation_tasks: of each validation, which
        choose the best policy then; 0: the rewards of training do."""
        self._run, self._trained, self._validation_tasks = run, trained, validation_tasks

    def stored(self) -> list[StepRecord]:
        return read_steps(self._run.steps)

    def add(self, record: StepRecord) -> None:
        """Store the step, and the policy that it began with where that is the best so far."""
        log.info("rl_step", **record.model_dump(exclude_none=True))
        before = [r for r in self.stored() if r.step < record.step]
        write_steps(self._run.steps, [*before, record])
        # Step k's rollouts were sampled from the policy after k - 1 steps.
        if self._validation_tasks:
            self.judge_policy(record.step - 1)
        elif record.reward_mean is not None:
            rewards = [r.reward_mean for r in before if r.step > 1 and r.reward_mean is not None]
            if record.step > 1 and _beats(record.reward_mean, rewards):
                self._keep(record.step - 1)

    def judge_policy(self, step: int) -> None:
        """Take note of the validation after `step` steps, where there was one and nothing cut it;
        the policy is kept where it is the best. Its checkpoint has to be whole."""
        known = read_validations(self._run.validations)
        attempt = self._newest(step, lambda attempt: attempt.validation)
        if attempt is None or any(v.step == step for v in known):
            return
        found = validation_of(step, list(read_rollouts(attempt.validation, step)))
        if found.conversations - found.masked < LEAST_JUDGED * self._validation_tasks:
            return
        write_validations(self._run.validations, [*known, found])
        log.info("rl_validation", **found.model_dump(exclude_none=True))
        rewards = [v.reward_mean for v in known if v.reward_mean is not None]
        if found.reward_mean is not None and _beats(found.reward_mean, rewards):
            self._keep(step)

    def validations(self) -> tuple[Validation, ...]:
        return tuple(read_validations(self._run.validations))

    def out_of_patience(self, patience: int | None) -> bool:
        """Whether the last so many validations are not better than the best one before them."""
        if patience is None:
            return False
        rewards = [v.reward_mean for v in self.validations() if v.reward_mean is not None]
        return len(rewards) > patience and max(rewards[:-patience]) >= max(rewards[-patience:])

    def _keep(self, step: int) -> None:
        folder = self._run.checkpoint(step)
        if step and not checkpoints.is_whole(folder):
            return
        if step:
            checkpoints.keep_as(folder, self._run.best)
        write_atomic(self._run.best_step, str(step))

    def _newest(self, step: int, folder: Callable[[AttemptFolder], Path]) -> AttemptFolder | None:
        """The last attempt that has conversations of a step in that folder of its."""
        attempts = self._run.attempts()[::-1]
        return next((a for a in attempts if rollouts_file(folder(a), step).exists()), None)

    def complete(self, done: int) -> None:
        """Keep exactly the records of the steps up to `done`, the step of the last checkpoint.

        A kill may have come between a checkpoint and its record, which is made from the rollouts;
        later steps will be made again.
        """
        stored = {r.step: r for r in self.stored() if r.step <= done}
        for step in set(range(1, done + 1)) - stored.keys():
            attempt = self._newest(step, lambda attempt: attempt.rollouts)
            if attempt is not None:
                metrics = read_metrics(attempt.metrics).get(step, {})
                stored[step] = step_record(step, metrics, attempt.rollouts, self._trained)
        if stored or self._run.steps.exists():
            write_steps(self._run.steps, [stored[step] for step in sorted(stored)])
        if self._validation_tasks:
            for step in range(done + 1) if done else ():
                self.judge_policy(step)


def validation_of(step: int, ended: Sequence[Rollout]) -> Validation:
    """What the conversations of a validation say of the policy after `step` steps."""
    judged = [r.state for r in ended if any(t.reward is not None for t in r.state.turns)]
    rewards = [max(t.reward.total for t in s.turns if t.reward is not None) for s in judged]
    solved = sum(s.best_turn is not None for s in judged)
    return Validation(
        step=step,
        conversations=len(ended),
        solved_rate=solved / len(judged) if judged else None,
        reward_mean=math.fsum(rewards) / len(judged) if judged else None,
        masked=len(ended) - len(judged),
    )


def _beats(reward: float, earlier: Sequence[float]) -> bool:
    return not earlier or reward > max(earlier)


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
        response_tokens_mean=_mean(lengths),
        response_tokens_max=max(lengths, default=0),
        cut_share=_mean(t.generation.finish_reason == "length" for t in turns),
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
            compile_rate=_mean(v.compiled for v in verdicts) or 0.0,
            correct_rate=_mean(v.correct for v in verdicts) or 0.0,
        )
        for tier, verdicts in sorted(by_tier.items())
    }


def _quantiles(values: Iterable[float], shares: Sequence[float]) -> dict[str, float]:
    """The values at these shares of the sorted ones (nearest rank); {} where there is none."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        f"p{round(100 * share)}": ordered[max(0, math.ceil(share * len(ordered)) - 1)]
        for share in shares
    }
