"""When a checkpoint counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coding_framework.training.verl.checkpoint_callback import FinishCheckpoint
from coding_framework.training.verl.checkpoints import is_whole

pytestmark = pytest.mark.unit


def test_a_checkpoint_counts_once_the_numbers_of_its_step_are_written(tmp_path: Path) -> None:
    logged: list[int] = []

    class Logger:
        def log(self, *, data: dict[str, Any], step: int) -> None:
            logged.append(step)

    model = SimpleNamespace(lora_rank=0)
    trainer = SimpleNamespace(
        logger=Logger(),
        train_dataset=None,
        config=SimpleNamespace(actor_rollout_ref=SimpleNamespace(model=model)),
    )
    folders = [tmp_path / f"global_step_{step}" for step in (1, 2)]
    for step, folder in enumerate(folders, 1):
        (folder / "actor").mkdir(parents=True)
        (folder / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"w")
        FinishCheckpoint({}).on_save(trainer, step, str(folder))
        assert not is_whole(folder)
        trainer.logger.log(data={}, step=step)
        assert is_whole(folder)
    trainer.logger.log(data={}, step=3)
    assert logged == [1, 2, 3]
