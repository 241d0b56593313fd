"""verl's FSDP engines on the CPU, imported only where a model is built (model.external_lib).

Beside registering the engines for device "cpu", two functions of verl are rebound: CPU offload of
the frozen reference asks for pinned memory, which needs an accelerator; and the critic's loader
hard-codes flash-attention 2.
"""

from __future__ import annotations

from typing import Any

import torch
import verl.utils.model as models
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl as fsdp

_OFFLOAD_POLICY = fsdp.CPUOffloadPolicy


def _offload_without_pinning(pin_memory: bool = False) -> Any:
    return _OFFLOAD_POLICY(pin_memory=False)


def _load_critic_with_sdpa(
    local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool
) -> Any:
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path,
        dtype=torch_dtype,
        config=model_config,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
    )


for _model_type, _engine in (
    ("language_model", fsdp.FSDPEngineWithLMHead),
    ("value_model", fsdp.FSDPEngineWithValueHead),
):
    EngineRegistry.register(model_type=_model_type, backend=["fsdp", "fsdp2"], device="cpu")(
        _engine
    )
fsdp.CPUOffloadPolicy = _offload_without_pinning
models.load_valuehead_model = _load_critic_with_sdpa
