"""A critic without flash-attention 2, which verl's loader hard-codes, and with the same value head
in each run: it is no part of the policy's weights, so it is drawn. Imported by the plug-in."""

from __future__ import annotations

from typing import Any

import torch
import verl.utils.model as models

_HEAD_SEED = 0


def _load_with_sdpa(
    local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool
) -> Any:
    from transformers import AutoModelForTokenClassification

    with torch.random.fork_rng():
        torch.manual_seed(_HEAD_SEED)
        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )


models.load_valuehead_model = _load_with_sdpa
