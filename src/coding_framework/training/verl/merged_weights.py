"""A policy's weights with its adapter, for the rollout, without touching the policy.

verl 0.9.1 copies all weights to the processor's memory, merges the adapter into them, sends them
and copies them back: 5.7 s of a step for 1.5 billion weights, where weights without an adapter
take 0.24 s (H200s, docs/SCALING.md). Here each sum is made on its own and sent.

Bound into verl's engine where this is imported, in training workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch.distributed.tensor import DTensor
from verl.utils.device import get_device_id
from verl.utils.fsdp_utils import (
    fsdp_version,
    normalize_peft_param_name,
    offload_fsdp_model_to_cpu,
)
from verl.utils.model import convert_weight_keys
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

_ADAPTER = "default"
_BASE = ".base_layer.weight"
_VERLS_MERGED = FSDPEngine._merged_lora_per_tensor_param


def _is_plain(layer: LoraLayer) -> bool:
    """Whether it adds B A times a scale to a weight, and nothing else."""
    return (
        list(layer.active_adapters) == [_ADAPTER]
        and _ADAPTER in layer.lora_A
        and not layer.merged
        and not getattr(layer, "fan_in_fan_out", False)
        and not layer.lora_bias.get(_ADAPTER, False)
        and _ADAPTER not in layer.lora_variant
    )


def _merged(engine: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Names as transformers has them, and whole weights in the dtype that the policy computes in.
    Every rank has to take all of them: a whole weight is gathered."""
    module = engine.module
    layers = {name: m for name, m in module.named_modules() if isinstance(m, LoraLayer)}
    if fsdp_version(module) != 2 or not all(map(_is_plain, layers.values())):
        yield from _VERLS_MERGED(engine)
        return
    device, state = get_device_id(), module.state_dict()
    dtype = PrecisionType.to_dtype(engine.engine_config.mixed_precision["param_dtype"])

    def whole(key: str) -> torch.Tensor:
        weight: Any = state[key]
        if isinstance(weight, DTensor):
            weight = weight.to(device, non_blocking=True)
            weight = weight.full_tensor()
        return weight.detach()  # type: ignore[no-any-return]

    try:
        names = convert_weight_keys(normalize_peft_param_name({key: key for key in state}), module)
        for name, key in names.items():
            weight = whole(key)
            layer = layers.get(key.removesuffix(_BASE)) if key.endswith(_BASE) else None
            if layer is not None:
                path = key.removesuffix(_BASE)
                up, down = (whole(f"{path}.lora_{part}.{_ADAPTER}.weight") for part in "BA")
                weight = weight + (up @ down) * layer.scaling[_ADAPTER]
            # A copy: senders may read it when the policy has moved on.
            yield (
                name,
                weight.to(dtype, copy=True) if weight.is_floating_point() else weight.clone(),
            )
    finally:
        if engine._is_offload_param:
            offload_fsdp_model_to_cpu(module)


FSDPEngine._merged_lora_per_tensor_param = _merged
