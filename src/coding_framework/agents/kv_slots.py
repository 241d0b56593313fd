"""A key-value cache of rows ("slots"), one per running request, for batched decoding.

Each slot has its own length, so requests of different lengths share one decode step without padding
and a finished one leaves at once: the last slot moves into its place, the used ones stay a prefix.
Used as transformers' `past_key_values`, together with the attention function registered here
(grouped-query heads are folded into the query length, so no key is copied to be repeated).
Not guaranteed: sliding-window or hybrid attention; the generator refuses such models.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATTENTION_NAME = "coding_framework_slots"
_BLOCK = 128
"""Capacity grows in steps of so many tokens: few reallocations, little unused memory."""


class KVSlots:
    """Keys and values of up to `slots` sequences, on the model's device and in its dtype."""

    def __init__(self, config: Any, slots: int, dtype: torch.dtype, device: torch.device) -> None:
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self._shape = (slots, getattr(config, "num_key_value_heads", heads), head_dim)
        self._options: dict[str, Any] = {"dtype": dtype, "device": device}
        self._layers = config.num_hidden_layers
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.capacity = 0
        self.lengths = torch.zeros(slots, dtype=torch.long, device=device)
        self._prefill_slots: torch.Tensor | None = None
        self._rows = torch.arange(slots, device=device)
        self._used = 0
        self._span = 0
        self.mask: torch.Tensor | None = None
        """(used, 1, 1, span) while decoding: 0 where a slot has a key, -inf behind its end."""

    def reserve(self, tokens: int) -> None:
        """Make room for sequences of so many tokens; keeps what is there."""
        if tokens <= self.capacity:
            return
        capacity = -(-tokens // _BLOCK) * _BLOCK
        slots, heads, dim = self._shape
        for store in (self.keys, self.values):
            old = list(store)
            store.clear()
            for layer in range(self._layers):
                grown = torch.zeros(slots, heads, capacity, dim, **self._options)
                if old:
                    grown[:, :, : self.capacity] = old[layer]
                    old[layer] = grown[:0]
                store.append(grown)
        self.capacity = capacity

    def release(self) -> None:
        """Give the memory back; nothing that was stored stays."""
        self.keys.clear()
        self.values.clear()
        self.capacity = 0

    def begin_prefill(self, slots: list[int], lengths: list[int]) -> None:
        """The next forward holds these slots' prompts, right-padded to the longest."""
        self._prefill_slots = torch.tensor(slots, device=self.lengths.device)
        self.lengths[self._prefill_slots] = torch.tensor(lengths, device=self.lengths.device)
        self.mask = None

    def begin_decode(self, used: int) -> torch.Tensor:
        """The next forward adds one token to each of the first `used` slots; its positions."""
        self._prefill_slots = None
        positions = self.lengths[:used].clone()
        self.lengths[:used] += 1
        self._used, self._span = used, int(positions.max()) + 1
        columns = torch.arange(self._span, device=positions.device)
        self.mask = torch.zeros(used, 1, 1, self._span, **self._options)
        self.mask.masked_fill_(columns[None, None, None, :] > positions[:, None, None, None],
                               float("-inf"))  # fmt: skip
        self._positions = positions
        return positions

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """transformers' hook: store (batch, heads, tokens, dim), give back what to attend to."""
        keys, values = self.keys[layer], self.values[layer]
        if self._prefill_slots is not None:
            keys[self._prefill_slots, :, : key.shape[2]] = key
            values[self._prefill_slots, :, : value.shape[2]] = value
            return key, value
        rows = self._rows[: self._used]
        keys[rows, :, self._positions] = key[:, :, 0]
        values[rows, :, self._positions] = value[:, :, 0]
        return keys[: self._used, :, : self._span], values[: self._used, :, : self._span]

    def copy(self, source: int, target: int) -> None:
        """Slot `target` becomes a copy of slot `source`."""
        length = int(self.lengths[source])
        for store in (*self.keys, *self.values):
            store[target, :, :length] = store[source, :, :length]
        self.lengths[target] = length

    def get_seq_length(self, layer: int = 0) -> int:
        """transformers' hook; positions are always given, so nothing depends on it."""
        return 0


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Prefill: causal attention. Decode: the heads of a group are queries at the same position."""
    batch, heads, tokens, dim = query.shape
    groups = heads // key.shape[1]
    mask = kwargs.get("slot_mask")
    if mask is None:
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
        out = functional.scaled_dot_product_attention(
            query, key, value, is_causal=tokens > 1, scale=scaling
        )
    else:
        folded = query.reshape(batch, key.shape[1], groups, dim)
        out = functional.scaled_dot_product_attention(
            folded, key, value, attn_mask=mask, scale=scaling
        ).reshape(batch, heads, tokens, dim)
    return out.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, _attend)
