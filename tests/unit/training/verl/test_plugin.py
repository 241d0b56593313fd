"""What each verl process loads first."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("verl")


def test_the_trainer_of_rollout_gpus_may_ask_its_logger_to_flush(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """verl 0.9.1's does at its start: an argument that no logger takes."""
    from verl.trainer.ppo.v1 import trainer_separate_async

    from coding_framework.training.verl import trainer

    trainer.put_in_place()

    with caplog.at_level(logging.INFO, logger=trainer_separate_async.__name__):
        trainer_separate_async.logger.info("%d replicas", 1, flush=True)

    (record,) = [r for r in caplog.records if r.name == trainer_separate_async.__name__]
    assert record.getMessage() == "1 replicas"
    assert record.funcName.startswith("test_the_trainer")
