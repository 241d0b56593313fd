"""Attention of rows that are packed one after the other, each of which sees itself alone.

With transformers' `sdpa` a packed micro-batch gets a mask of tokens x tokens, and attention works
on all pairs of tokens. Here a row costs its own square and nothing else: on a GPU by PyTorch's
flash kernels for rows of any length (`torch.nn.attention.varlen`), on a CPU row after row. A row
begins where its position is 0, as verl packs (`use_remove_padding`). Loaded by the training
workers (`plugin`) and chosen by `MultiTurnRLConfig.packed_attention`.

Not here: caches, sliding windows, masks of padded batches; each raises TrainingError.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch.nn import functional
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from coding_framework.errors import TrainingError
from coding_framework.training.verl.overrides import PACKED_ATTENTION


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
    """transformers' interface. query: (1, heads, tokens, size of a head); key and value may have
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


ALL_ATTENTION_FUNCTIONS.register(PACKED_ATTENTION, attend)
