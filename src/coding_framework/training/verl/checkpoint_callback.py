"""What verl calls when it has written a checkpoint (trainer.checkpoint_callback_class)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from coding_framework.paths import write_atomic
from coding_framework.store.checkpoints import START_MODEL, finish, manifest_of


class FinishCheckpoint(CheckpointCallback):  # type: ignore[misc]
    """Adds our files to the checkpoint. The manifest, which makes the checkpoint count, is written
    after verl has logged the step: a run that resumes here has lost nothing of the step."""

    def on_save(
        self,
        trainer: Any,
        global_step: int,
        checkpoint_dir: str,
        async_save: bool = False,
        **_: Any,
    ) -> None:
        """Raises InfrastructureError where the disk is full, here or when verl logs the step; the
        run ends with its sentence."""
        curriculum = getattr(trainer.train_dataset, "curriculum", None)
        if curriculum is not None:
            curriculum.advance(global_step)
            curriculum.save(Path(checkpoint_dir))
        model = trainer.config.actor_rollout_ref.model
        if model.lora_rank:
            write_atomic(Path(checkpoint_dir) / "actor" / START_MODEL, str(model.path))
        folder = Path(checkpoint_dir)
        manifest, written = manifest_of(folder), trainer.logger.log

        def write_and_finish(*arguments: Any, **named: Any) -> None:
            trainer.logger.log = written
            written(*arguments, **named)
            finish(folder, manifest)

        trainer.logger.log = write_and_finish
