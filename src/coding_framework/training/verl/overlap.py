"""Answers are written and judged while the step before is learnt (`one_step_off_policy`).

verl 0.9.1's trainer for it (`colocate_async`) stops the rollout while it learns. Two steps were
then answered at once and learnt one after the other, in 44.4 and 19.6 s (two H100s, 2026-11-26).
Here the rollout goes on, and stops for its new weights alone; what it has not finished it goes on
with, by the new weights. `free_cache_engine` is off, so it keeps its memory.

What a step learns from is then not what was asked in it, so its conversations are noted by their
groups. Bound into verl's trainer where this is imported.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.utils.debug import marked_timer

from coding_framework.store.conversations import note_learnt
from coding_framework.training.verl.spec import SPEC_VARIABLE, read_spec

_BALANCE = PPOTrainer._balance_batch


def _keep_answering(trainer: Any) -> None:
    """What was sampled is learnt; the rollout goes on."""
    if trainer.curr_step_profile:
        trainer._stop_rollout_profiling()


def _give_weights(trainer: Any) -> None:
    """Stop the rollout, hand over the weights, go on."""
    manager = trainer.checkpoint_manager
    with marked_timer("update_weights", trainer.timing_raw, color="red"):
        manager.abort_replicas()
        manager.update_weights(trainer.global_steps)
        manager.resume_generation_replicas()


def _noted(trainer: Any, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
    """verl's first act on a step's rows."""
    if isinstance(trainer, PPOTrainerColocateAsync):
        groups = {key.split("_")[0] for key in batch.keys}
        rollouts = Path(read_spec(Path(os.environ[SPEC_VARIABLE])).rollouts_dir)
        note_learnt(rollouts, trainer.global_steps, groups)
    return _BALANCE(trainer, batch, metrics=metrics)


PPOTrainerColocateAsync.on_sample_end = _keep_answering
PPOTrainerColocateAsync.on_step_end = _give_weights
PPOTrainer._balance_batch = _noted
