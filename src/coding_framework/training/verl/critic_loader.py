"""A critic without flash-attention 2, which verl's loader hard-codes; imported by the plug-in."""

from __future__ import annotations

from typing import Any

import torch
import verl.utils.model as models


def _load_with_sdpa(
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


models.load_valuehead_model = _load_with_sdpa
