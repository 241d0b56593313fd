"""The records of a run's steps and validations, and the best policy, kept beyond its checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from coding_framework.paths import write_atomic
from coding_framework.store import checkpoints
from coding_framework.store.conversations import read_rollouts
from coding_framework.store.events import log
from coding_framework.store.folder import AttemptFolder, RLFolder, rollouts_file
from coding_framework.store.records import Rollout, StepRecord, Validation
from coding_framework.store.training_log import (
    read_metrics,
    read_steps,
    read_validations,
    write_steps,
    write_validations,
)
from coding_framework.training.verl.steps import step_record
from coding_framework.types import Role

LEAST_JUDGED = 0.9
"""Share of a validation's conversations without which it says nothing. Where a run is ended while
it validates, some are not begun, and the judge is taken from others."""


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
