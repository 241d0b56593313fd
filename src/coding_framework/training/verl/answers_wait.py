"""How long a step waits for its last answer; bound into verl where this is imported.

verl 0.9.1 looks every 2 s whether the answers of a step are there, so each step waited a second for
nothing.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

LOOK_EVERY_S = 0.1
_VERLS_WAIT = ReplayBuffer._wait_for_next_poll


def _wait_shortly(buffer: Any, partition_id: str, last_told: float) -> float:
    buffer.poll_interval = LOOK_EVERY_S
    told: float = _VERLS_WAIT(buffer, partition_id, last_told)
    return told


ReplayBuffer._wait_for_next_poll = _wait_shortly
