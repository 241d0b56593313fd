"""How long a step waits for its last answer."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

replay_buffer = pytest.importorskip("verl.trainer.ppo.v1.replay_buffer")


def test_a_step_looks_for_its_answers_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    import coding_framework.training.verl.answers_wait  # noqa: F401

    slept: list[float] = []
    monkeypatch.setattr(replay_buffer.time, "sleep", slept.append)
    buffer = SimpleNamespace(poll_interval=2.0)
    replay_buffer.ReplayBuffer._wait_for_next_poll(buffer, "train", time.time())
    assert slept == [0.1]
