"""Rollouts on the CPU: a Ray server that batches the requests that wait, and its weight sync.

The decode loop is `agents/batched_generation.py`'s, the one that evaluation and serving use. verl
sees three classes: the server (an actor), the replica (starts it) and the adapter (lives in the
training worker and hands over the weights after each step).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from coding_framework.types import SamplingParams

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def server_name(replica_rank: int) -> str:
    """Ray name of a replica's server, by which the training worker finds it."""
    return f"coding_framework_cpu_rollout_{replica_rank}"


def sampling_from_verl(params: dict[str, Any], response_length: int) -> SamplingParams:
    """verl's sampling dict (vLLM's names; top_k -1 means no limit) as ours."""
    tokens = params.get("max_tokens") or params.get("max_new_tokens") or response_length
    return SamplingParams(
        max_new_tokens=min(int(tokens), response_length),
        temperature=float(params.get("temperature", 1.0)),
        top_p=float(params.get("top_p", 1.0)),
        top_k=max(int(params.get("top_k", 0)), 0),
        seed=params.get("seed"),
    )


class CPURolloutServer:
    """Token ids in, token ids and log-probs out. One process, one model, one batch."""

    def __init__(self, model_config: Any, config: Any) -> None:
        from transformers import AutoModelForCausalLM, GenerationConfig

        from coding_framework.agents.batched_generation import BatchedGenerator

        self._response_length = int(config.response_length)
        self._step: int | None = None
        path = model_config.local_path
        dtype = DTYPES[config.dtype]
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
        eos = {model_config.tokenizer.eos_token_id}
        if os.path.exists(os.path.join(path, "generation_config.json")):
            more = GenerationConfig.from_pretrained(path).eos_token_id
            eos.update(more if isinstance(more, list) else [more])
        self._dtype = dtype
        self._generator = BatchedGenerator(
            model,
            eos_token_ids=sorted(e for e in eos if e is not None),
            max_batch=int(config.max_num_seqs),
            max_context=int(config.prompt_length) + self._response_length,
            threads=int(os.environ.get("OMP_NUM_THREADS", "0")) or None,
        )

    async def generate(
        self,
        request_id: str,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: Any = None,
        video_data: Any = None,
        **_: Any,
    ) -> TokenOutput:
        """Answer one prompt; waits for a place in the batch."""
        sampling = sampling_from_verl(sampling_params, self._response_length)
        answer = await self._generator.generate_ids(list(prompt_ids), sampling)
        return TokenOutput(
            token_ids=list(answer.response_ids),
            log_probs=list(answer.logprobs),
            stop_reason="completed" if answer.finish_reason == "stop" else "length",
            extra_fields={"global_steps": self._step},
        )

    async def load(self, state: dict[str, torch.Tensor], global_steps: int | None) -> int:
        """Take new weights; waits for running answers. Returns how many tensors were taken."""
        await asyncio.to_thread(self._generator.load_state_dict, state)
        self._step = global_steps if global_steps is not None else self._step
        return len(state)

    async def ready(self) -> bool:
        """True once the model is loaded (the actor's constructor has run)."""
        return True

    async def nothing(self, *_: Any, **__: Any) -> None:
        """A CPU has no second place to put weights or cache: what verl asks here is a no-op."""

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = nothing
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing


class CPURolloutReplica(RolloutReplica):  # type: ignore[misc]
    """One server. Started by verl's LLM server manager."""

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded."""
        name = server_name(self.replica_rank)
        server = (
            ray.remote(CPURolloutServer)
            .options(name=name, num_cpus=0.1, max_concurrency=256)
            .remote(omega_conf_to_dataclass(self.model_config), self.config)
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"ray://{name}"


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
        dtype = DTYPES[self.config.dtype]
        state = {name: weight.detach().to("cpu", dtype) for name, weight in weights}
        if self._leads:
            server = ray.get_actor(server_name(self._replica_rank))
            await server.load.remote(state, global_steps)
