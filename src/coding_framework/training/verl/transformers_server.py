"""A model of transformers as a Ray actor: token ids in, token ids and log-probs out.

verl's rollout server on the CPU, and on any device the server of a role that is frozen. The decode
loop is `agents/batched_generation.py`'s, the one that evaluation and serving use: it batches the
requests that wait. Neither verl nor Ray is imported here: that saves the server's process 7 s of
start.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from coding_framework.types import Record, SamplingParams

if TYPE_CHECKING:
    import torch


class ServerConfig(Record):
    """What the server needs. Makers: the CPU's replica; episode_spec, for a frozen role."""

    model_path: str
    adapter: str | None = None
    """PEFT folder, merged into the model."""
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["bfloat16", "float32"]
    prompt_tokens: int
    response_tokens: int
    max_batch: int


@dataclass
class ServedTokens:
    """An answer, with the fields of verl's `TokenOutput` that are read."""

    token_ids: list[int]
    log_probs: list[float]
    stop_reason: str
    extra_fields: dict[str, Any] = field(default_factory=dict)
    routed_experts: None = None
    num_preempted: None = None


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


class TransformersServer:
    """Token ids in, token ids and log-probs out. One process, one model, one batch."""

    def __init__(self, config: ServerConfig) -> None:
        from coding_framework.agents.batched_generation import BatchedGenerator
        from coding_framework.agents.policies import load_model, stop_ids

        self._response_tokens = config.response_tokens
        self._step: int | None = None
        model, tokenizer = load_model(
            config.model_path, adapter=config.adapter, dtype=config.dtype, device=config.device
        )
        self._generator = BatchedGenerator(
            model,
            eos_token_ids=stop_ids(model, tokenizer),
            max_batch=config.max_batch,
            max_context=config.prompt_tokens + config.response_tokens,
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
    ) -> ServedTokens:
        """Answer one prompt; waits for a place in the batch."""
        sampling = sampling_from_verl(sampling_params, self._response_tokens)
        answer = await self._generator.generate_ids(list(prompt_ids), sampling)
        return ServedTokens(
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
