"""How long a step waits for its last answer."""

from __future__ import annotations

import time

import pytest

replay_buffer = pytest.importorskip("verl.trainer.ppo.v1.replay_buffer")


def test_a_step_looks_for_its_answers_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    from coding_framework.training.verl.trainer import TurnsBuffer

    slept: list[float] = []
    monkeypatch.setattr(replay_buffer.time, "sleep", slept.append)
    buffer = TurnsBuffer(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs={},
    )
    buffer._wait_for_next_poll("train", time.time())
    assert slept == [0.1]
