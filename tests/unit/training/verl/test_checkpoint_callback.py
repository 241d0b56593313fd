"""When a checkpoint counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coding_framework.store.checkpoints import is_whole
from coding_framework.training.verl.trainer import FinishCheckpoint

pytestmark = pytest.mark.unit


class Logger:
    """verl's, of which `broken` says that the disk is full."""

    def __init__(self) -> None:
        self.logged: list[int] = []
        self.broken = False

    def log(self, *, data: dict[str, Any], step: int) -> None:
        if self.broken:
            raise OSError("no space left")
        self.logged.append(step)


@pytest.fixture
def trainer() -> SimpleNamespace:
    model = SimpleNamespace(lora_rank=0)
    return SimpleNamespace(
        logger=Logger(),
        train_dataset=None,
        config=SimpleNamespace(actor_rollout_ref=SimpleNamespace(model=model)),
    )


def saved(trainer: SimpleNamespace, root: Path, step: int) -> Path:
    folder = root / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    (folder / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"w")
    FinishCheckpoint({}).on_save(trainer, step, str(folder))
    return folder


def test_a_checkpoint_counts_once_the_numbers_of_its_step_are_written(
    trainer: SimpleNamespace, tmp_path: Path
) -> None:
    for step in (1, 2):
        folder = saved(trainer, tmp_path, step)
        assert not is_whole(folder)
        trainer.logger.log(data={}, step=step)
        assert is_whole(folder)
    trainer.logger.log(data={}, step=3)
    assert trainer.logger.logged == [1, 2, 3]


def test_a_checkpoint_whose_step_could_not_be_written_does_not_count(
    trainer: SimpleNamespace, tmp_path: Path
) -> None:
    folder = saved(trainer, tmp_path, 1)
    trainer.logger.broken = True
    with pytest.raises(OSError, match="no space left"):
        trainer.logger.log(data={}, step=1)
    trainer.logger.broken = False
    trainer.logger.log(data={}, step=2)
    assert not is_whole(folder)


def test_two_checkpoints_before_a_step_is_written_both_count_then(
    trainer: SimpleNamespace, tmp_path: Path
) -> None:
    folders = [saved(trainer, tmp_path, step) for step in (1, 2)]
    trainer.logger.log(data={}, step=2)
    assert all(map(is_whole, folders))
    assert trainer.logger.logged == [2]
