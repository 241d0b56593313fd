"""The role that is not trained, served beside verl's own rollout servers.

One Ray actor for all rollout workers of the run, on the machine that trains: the model that RL
started from with the role's adapter merged, by transformers. On GPUs it takes its share of the
first one's memory (the weights, and keys and values while it answers), and it is slower than vLLM.
"""

from __future__ import annotations

from typing import Any

import ray

from coding_framework.training.verl.transformers_server import (
    ServedTokens,
    ServerConfig,
    TransformersServer,
)

ACTOR = "coding_framework_frozen_role"
"""Ray name, by which the workers of a run share one server."""


class FrozenServer:
    """The actor as verl's server client: what `VerlPolicy` asks. Made in a worker of the run; the
    first one starts the actor, which loads its model meanwhile."""

    def __init__(self, config: ServerConfig) -> None:
        self._actor = (
            ray.remote(TransformersServer)
            .options(name=ACTOR, get_if_exists=True, num_cpus=0.1, max_concurrency=256)
            .remote(config)
        )

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> ServedTokens:
        """Answer one prompt. Raises RayError where the actor is gone or could not start."""
        answer: ServedTokens = await self._actor.generate.remote(
            request_id, prompt_ids, sampling_params
        )
        return answer
