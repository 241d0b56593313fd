"""The CPU's rollout as verl sees it.

The replica starts `TransformersServer`; the adapter lives in the training worker and hands over the
weights after each step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica

from coding_framework.training.verl.transformers_server import ServerConfig, TransformersServer


def server_name(replica_rank: int) -> str:
    """Ray name of a replica's server, by which the training worker finds it."""
    return f"coding_framework_cpu_rollout_{replica_rank}"


class CPURolloutReplica(RolloutReplica):  # type: ignore[misc]
    """One server. Started by verl's LLM server manager."""

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded."""
        name = server_name(self.replica_rank)
        server = (
            ray.remote(TransformersServer)
            .options(name=name, num_cpus=0.1, max_concurrency=256)
            .remote(self._server_config())
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"ray://{name}"

    def _server_config(self) -> ServerConfig:
        model = omega_conf_to_dataclass(self.model_config)
        return ServerConfig(
            model_path=model.local_path,
            dtype=self.config.dtype,
            prompt_tokens=self.config.prompt_length,
            response_tokens=self.config.response_length,
            max_batch=self.config.max_num_seqs,
        )


class CPURolloutAdapter(BaseRollout):  # type: ignore[misc]
    """Lives in the training worker; sends its weights to the replica's server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **kwargs: Any) -> None:
        super().__init__(config, model_config, device_mesh, **kwargs)
        rank, ranks = int(os.environ["RANK"]), config.tensor_model_parallel_size
        self._replica_rank, self._leads = rank // ranks, rank % ranks == 0

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Nothing to release."""

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **_: Any,
    ) -> None:
        """Send all weights in the rollout's dtype.

        Every rank drains the generator (gathering a tensor is a collective); one rank sends.
        """
        dtype = getattr(torch, self.config.dtype)
        state = {name: weight.detach().to("cpu", dtype) for name, weight in weights}
        if self._leads:
            server = ray.get_actor(server_name(self._replica_rank))
            await server.load.remote(state, global_steps)
