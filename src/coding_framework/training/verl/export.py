"""A verl checkpoint as a Hugging Face folder, adapters merged. Imports torch; call it last.

python -m coding_framework.training.verl.export CHECKPOINT/actor TARGET
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.errors import TrainingError

if TYPE_CHECKING:
    import torch

_WRAPPED = "base_model.model."
_LORA_A, _LORA_B = ".lora_A.default.weight", ".lora_B.default.weight"


def export_model(actor: Path, target: Path, dtype: str = "float32") -> None:
    """Write the policy of a checkpoint's `actor` folder as a Hugging Face folder.

    Args:
        actor: verl's folder with `model_world_size_N_rank_R.pt` and `huggingface/`.
        target: Made new and as a whole: a kill leaves the old folder or none.
        dtype: "float32" keeps every update; "bfloat16" halves the file and rounds small ones away.

    Raises:
        TrainingError: where the checkpoint cannot be read or does not fit the model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    state = merge_adapters(_full_state(actor), _lora_scale(actor))
    config = AutoConfig.from_pretrained(actor / "huggingface")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    result = model.load_state_dict(state, strict=False)
    missing = [k for k in result.missing_keys if k not in (model._tied_weights_keys or ())]
    if missing or result.unexpected_keys:
        raise TrainingError(
            f"{actor} does not fit its model: missing {missing[:3]}, "
            f"unknown {result.unexpected_keys[:3]}"
        )
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(actor / "huggingface", fresh)
    model.to(getattr(torch, dtype)).save_pretrained(fresh)
    if target.exists():
        shutil.rmtree(target)
    fresh.rename(target)


def _full_state(actor: Path) -> dict[str, torch.Tensor]:
    """The whole state, gathered from the ranks' shards (all sharded along dimension 0)."""
    import torch
    from torch.distributed.tensor import DTensor

    files = sorted(
        actor.glob("model_world_size_*_rank_*.pt"), key=lambda p: int(p.stem.rsplit("_", 1)[1])
    )
    if not files:
        raise TrainingError(f"{actor} holds no model: it is not a checkpoint of verl")
    shards: dict[str, list[torch.Tensor]] = {}
    whole: dict[str, torch.Tensor] = {}
    for file in files:
        # Our own trainer wrote it: a pickle with DTensors, which weights_only refuses.
        for name, value in torch.load(file, map_location="cpu", weights_only=False).items():
            if isinstance(value, DTensor):
                shards.setdefault(name, []).append(value.to_local().float())
            else:
                whole[name] = value.float()
    return whole | {name: torch.cat(parts) for name, parts in shards.items()}


def _lora_scale(actor: Path) -> float:
    meta = actor / "lora_train_meta.json"
    if not meta.exists():
        return 0.0
    lora: dict[str, Any] = json.loads(meta.read_text(encoding="utf-8"))
    return float(lora["lora_alpha"]) / float(lora["r"])


def merge_adapters(state: dict[str, torch.Tensor], scale: float) -> dict[str, torch.Tensor]:
    """PEFT's state as the plain model's: W + scale * B @ A, names as without PEFT."""
    merged: dict[str, torch.Tensor] = {}
    for name, weight in state.items():
        if _LORA_A in name or _LORA_B in name:
            continue
        plain = name.removeprefix(_WRAPPED).replace(".base_layer.", ".")
        layer = name.removesuffix(".base_layer.weight")
        if layer != name:
            weight = weight + scale * (state[layer + _LORA_B] @ state[layer + _LORA_A])
        merged[plain] = weight
    return merged


def main(arguments: list[str]) -> int:
    """Export what the command line names."""
    if len(arguments) != 2:
        print("error: give the actor folder of a checkpoint, and the target", file=sys.stderr)
        return 2
    try:
        export_model(Path(arguments[0]), Path(arguments[1]))
    except (TrainingError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
