"""A checkpoint engine of verl's for machines without NCCL: weights go from trainer to rollout as a
file. With it verl's trainer for rollout GPUs of their own runs on a CPU, as it is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

BACKEND = "by_file"
FOLDER = "WEIGHTS_BY_FILE"
"""Variable that names a run's folder for them."""
WAIT_S = 120.0


def _file(step: int | None) -> Path:
    return Path(os.environ[FOLDER]) / f"weights-{step}.pt"


@CheckpointEngineRegistry.register(BACKEND)
class WeightsByFile(CheckpointEngine):  # type: ignore[misc]
    """Of both ends."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self.bucket_size, self.is_master = bucket_size, is_master

    def prepare(self) -> None:
        return None

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        return (
            {"sends": [rank == 0 for rank in range(actor_wg_world_size)]},
            {"sends": [False] * rollout_world_size},
        )

    def init_process_group(self, sends: bool) -> None:
        self._sends = sends

    def finalize(self) -> None:
        return None

    async def send_weights(
        self, weights: Iterator[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> None:
        state = {name: weight.detach().cpu().clone() for name, weight in weights}
        if self._sends:
            part = _file(global_steps).with_suffix(".part")
            torch.save(state, part)
            part.rename(_file(global_steps))

    def receive_weights(
        self, global_steps: int | None = None
    ) -> Iterator[tuple[str, torch.Tensor]]:
        deadline = time.monotonic() + WAIT_S
        while not _file(global_steps).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no weights of step {global_steps}")
            time.sleep(0.05)
        state = torch.load(_file(global_steps))
        _file(global_steps).unlink()
        yield from state.items()
