"""What a process that holds the policy's weights computes in its own way.

- Attention of rows that are packed one after the other, each of which sees itself alone.
- Log-probs of packed tokens, a chunk at a time.
- The weights with their adapter, for the rollout.

`patches.in_worker` binds them into verl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch.distributed.tensor import DTensor
from torch.nn import functional
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from verl.utils.device import get_device_id
from verl.utils.fsdp_utils import (
    fsdp_version,
    normalize_peft_param_name,
    offload_fsdp_model_to_cpu,
)
from verl.utils.model import convert_weight_keys
from verl.utils.torch_dtypes import PrecisionType

from coding_framework.errors import TrainingError
from coding_framework.training.verl.overrides import PACKED_ATTENTION

Weights = Callable[[Any], Iterator[tuple[str, torch.Tensor]]]
_ADAPTER = "default"
_BASE = ".base_layer.weight"


class _Rows:
    """Where the rows of a micro-batch end, found once for all layers: each asks the GPU."""

    def __init__(self) -> None:
        self._positions: torch.Tensor | None = None
        self._version: int | None = None
        self._found: tuple[torch.Tensor, list[int]] | None = None

    def of(self, positions: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """Bounds of the rows, int32 (rows + 1), on the device and as numbers. positions: (1,
        tokens)."""
        version = None if positions.is_inference() else positions._version
        same = positions is self._positions and version is not None and version == self._version
        if self._found is None or not same:
            starts = torch.nonzero(positions.reshape(-1) == 0).reshape(-1)
            end = starts.new_tensor([positions.numel()])
            bounds = torch.cat([starts, end]).to(torch.int32)
            self._positions, self._version = positions, version
            self._found = (bounds, bounds.tolist())
        return self._found


_rows = _Rows()


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    position_ids: torch.Tensor | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' interface of attention (`MultiTurnRLConfig.packed_attention`).

    With transformers' `sdpa` a packed micro-batch gets a mask of tokens x tokens, and attention
    works on all pairs of tokens. Here a row costs its own square and nothing else: on a GPU by
    PyTorch's flash kernels for rows of any length (`torch.nn.attention.varlen`), on a CPU row after
    row. A row begins where its position is 0, as verl packs (`use_remove_padding`). Not here:
    caches, sliding windows, masks of padded batches; each raises TrainingError.

    query: (1, heads, tokens, size of a head); key and value may have
    fewer heads. Gives (1, tokens, heads, size of a head). Raises TrainingError for what is not
    packed."""
    if attention_mask is not None or position_ids is None or query.shape[0] != 1:
        raise TrainingError(
            "packed_attention takes rows that are packed into one, with their positions and no "
            "mask: leave it out"
        )
    if sliding_window is not None:
        raise TrainingError(
            "packed_attention knows no sliding window, which this model has: leave it out"
        )
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    bounds, ends = _rows.of(position_ids)
    if ends[0] != 0:
        raise TrainingError("the first of the packed rows does not begin at position 0")
    of_rows = _flash if query.is_cuda else _row_by_row
    return of_rows(query, key, value, bounds, ends, scaling), None


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    bounds: torch.Tensor, ends: list[int], scaling: float | None,
) -> torch.Tensor:  # fmt: skip
    from torch.nn.attention.varlen import varlen_attn

    longest = max(b - a for a, b in pairwise(ends))
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))
    out = varlen_attn(
        q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=(-1, 0)
    )  # the window: causal
    assert isinstance(out, torch.Tensor)
    return out.unsqueeze(0)


def _row_by_row(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    bounds: torch.Tensor, ends: list[int], scaling: float | None,
) -> torch.Tensor:  # fmt: skip
    rows = [
        functional.scaled_dot_product_attention(
            query[:, :, a:b], key[:, :, a:b], value[:, :, a:b], is_causal=True, scale=scaling
        )
        for a, b in pairwise(ends)
    ]
    return torch.cat(rows, dim=2).transpose(1, 2).contiguous()


def register_attention() -> None:
    """By its name in transformers."""
    ALL_ATTENTION_FUNCTIONS.register(PACKED_ATTENTION, attend)


CHUNK = 2048
"""Tokens at once: with 152,000 words 1.2 GB of float32, some of them at a time."""


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        norms = torch.cat([part.float().logsumexp(-1) for part in torch.split(logits, CHUNK)])
        ctx.save_for_backward(logits, labels, norms)
        chosen = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1).float()
        return chosen - norms

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, labels, norms = ctx.saved_tensors
        result = torch.empty_like(logits)
        chunks = zip(
            *(torch.split(t, CHUNK) for t in (logits, labels, norms, gradients[0], result)),
            strict=True,
        )
        for part, label, norm, gradient, out in chunks:
            slope = (part.float() - norm.unsqueeze(-1)).exp_().mul_(-gradient.unsqueeze(-1))
            slope.scatter_add_(-1, label.unsqueeze(-1), gradient.unsqueeze(-1))
            out.copy_(slope)
        return result, None


def token_logprobs(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """log softmax(logits)[label] of each token, float32; shapes (..., words) and (...)."""
    apply: Callable[..., torch.Tensor] = _TokenLogprobs.apply
    return apply(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)).view(labels.shape)


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


def merged(engine: Any, theirs: Weights) -> Iterator[tuple[str, torch.Tensor]]:
    """Names as transformers has them, and whole weights in the dtype that the policy computes in:
    each sum of weight and adapter is made on its own and sent, without touching the policy.
    Every rank has to take all of them: a whole weight is gathered. theirs: verl's own way, for
    adapters of another kind."""
    module = engine.module
    layers = {name: m for name, m in module.named_modules() if isinstance(m, LoraLayer)}
    if fsdp_version(module) != 2 or not all(map(_is_plain, layers.values())):
        yield from theirs(engine)
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
