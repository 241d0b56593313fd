"""The records of a run's steps, and the policy that was paid best, kept beyond its checkpoint."""

from __future__ import annotations

import structlog

from coding_framework.paths import write_atomic
from coding_framework.store import checkpoints
from coding_framework.store.folder import RLFolder, rollouts_file
from coding_framework.store.records import StepRecord
from coding_framework.store.training_log import read_metrics, read_steps, write_steps
from coding_framework.training.verl.steps import step_record
from coding_framework.types import Role

log = structlog.get_logger(__name__)


class RunSteps:
    """The steps of the run in a folder. trained: the role that learns; None: all."""

    def __init__(self, run: RLFolder, trained: Role | None) -> None:
        self._run, self._trained = run, trained

    def stored(self) -> list[StepRecord]:
        return read_steps(self._run.steps)

    def add(self, record: StepRecord) -> None:
        """Store the step, and its policy where it was paid best so far."""
        log.info("rl_step", **record.model_dump(exclude_none=True))
        before = [r for r in self.stored() if r.step < record.step]
        write_steps(self._run.steps, [*before, record])
        # Step k's rollouts were sampled from the policy after k - 1 steps.
        policy_step = record.step - 1
        rewards = [r.reward_mean for r in before if r.step > 1 and r.reward_mean is not None]
        folder = self._run.checkpoint(policy_step)
        if record.reward_mean is None or not checkpoints.is_whole(folder):
            return
        if not rewards or record.reward_mean > max(rewards):
            checkpoints.keep_as(folder, self._run.best)
            write_atomic(self._run.best_step, str(policy_step))

    def complete(self, done: int) -> None:
        """Keep exactly the records of the steps up to `done`, the step of the last checkpoint.

        A kill may have come between a checkpoint and its record, which is made from the rollouts;
        later steps will be made again.
        """
        stored = {r.step: r for r in self.stored() if r.step <= done}
        attempts = self._run.attempts()[::-1]
        for step in range(1, done + 1):
            for attempt in attempts if step not in stored else ():
                if rollouts_file(attempt.rollouts, step).exists():
                    metrics = read_metrics(attempt.metrics).get(step, {})
                    stored[step] = step_record(step, metrics, attempt.rollouts, self._trained)
                    break
        if stored or self._run.steps.exists():
            write_steps(self._run.steps, [stored[step] for step in sorted(stored)])
