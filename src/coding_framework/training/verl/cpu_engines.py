"""verl's FSDP engines on the CPU, imported by the plug-in in training workers alone.

Beside registering the engines for device "cpu", one function of verl is rebound: CPU offload of the
frozen reference asks for pinned memory, which needs an accelerator.
"""

from __future__ import annotations

from typing import Any

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl as fsdp

_OFFLOAD_POLICY = fsdp.CPUOffloadPolicy


def _offload_without_pinning(pin_memory: bool = False) -> Any:
    return _OFFLOAD_POLICY(pin_memory=False)


for _model_type, _engine in (
    ("language_model", fsdp.FSDPEngineWithLMHead),
    ("value_model", fsdp.FSDPEngineWithValueHead),
):
    EngineRegistry.register(model_type=_model_type, backend=["fsdp", "fsdp2"], device="cpu")(
        _engine
    )
fsdp.CPUOffloadPolicy = _offload_without_pinning
