"""Exports a verl checkpoint as a Hugging Face folder, with adapters merged. Imports torch.

python -m coding_framework.training.verl.export CHECKPOINT/actor TARGET
python -m coding_framework.training.verl.export CHECKPOINT/actor TARGET --adapter-of START_MODEL

The second command writes the adapter that a run with --lora-rank has trained, in PEFT's format and
bfloat16: a few percent of the model's size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from coding_framework.errors import CodingFrameworkError, TrainingError
from coding_framework.store.checkpoints import START_MODEL
from coding_framework.store.folder import is_model, replaced
from coding_framework.store.model_card import exported_card, write_card

if TYPE_CHECKING:
    import torch

_WRAPPED = "base_model.model."
_LORA_A, _LORA_B = ".lora_A.default.weight", ".lora_B.default.weight"


def export_model(actor: Path, target: Path) -> None:
    """Write the policy of a checkpoint's `actor` folder as a Hugging Face folder, in float32.

    Args:
        actor: verl's folder with `model_world_size_N_rank_R.pt` and `huggingface/`.
        target: Made new and as a whole: a kill leaves the old folder or none.

    Raises:
        TrainingError: where the checkpoint cannot be read or does not fit the model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    state = _merged_state(actor)
    # The trainer's own attention may be one that only its processes know.
    config = AutoConfig.from_pretrained(actor / "huggingface", attn_implementation="sdpa")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    result = model.load_state_dict(state, strict=False)
    missing = [k for k in result.missing_keys if k not in (model._tied_weights_keys or ())]
    if missing or result.unexpected_keys:
        raise TrainingError(
            f"{actor} does not fit its model: missing {missing[:3]}, "
            f"unknown {result.unexpected_keys[:3]}"
        )
    with replaced(target) as fresh:
        shutil.copytree(actor / "huggingface", fresh, dirs_exist_ok=True)
        model.save_pretrained(fresh)
        _write_card(actor, fresh)


def export_adapter(actor: Path, target: Path, base: str) -> None:
    """Write the trained adapter alone, as a whole. base: the model that it belongs to.

    Raises:
        TrainingError: where the checkpoint has none.
    """
    import torch
    from peft import LoraConfig
    from safetensors.torch import save_file

    meta = _lora_meta(actor)
    if meta is None:
        raise TrainingError(f"{actor} has no adapter: all weights were trained (--lora-rank 0)")
    lora = {k: v for k, v in _full_state(actor).items() if _LORA_A in k or _LORA_B in k}
    state = {
        name.replace(".default.weight", ".weight"): weight.to(torch.bfloat16).contiguous()
        for name, weight in lora.items()
    }
    layers = {name.split(_LORA_A)[0].rsplit(".", 1)[1] for name in lora if _LORA_A in name}
    with replaced(target) as fresh:
        LoraConfig(
            r=int(meta["r"]),
            lora_alpha=int(meta["lora_alpha"]),
            target_modules=sorted(layers),
            task_type="CAUSAL_LM",
            base_model_name_or_path=base,
        ).save_pretrained(fresh)
        save_file(state, fresh / "adapter_model.safetensors", metadata={"format": "pt"})
        _write_card(actor, fresh)


def _write_card(actor: Path, folder: Path) -> None:
    card = exported_card(actor)
    if card is not None:
        write_card(folder, card)


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
        for name, value in _loaded(file).items():
            if isinstance(value, DTensor):
                shards.setdefault(name, []).append(value.to_local().float())
            else:
                whole[name] = value.float()
    return whole | {name: torch.cat(parts) for name, parts in shards.items()}


def _loaded(file: Path) -> dict[str, torch.Tensor]:
    """A rank's tensors; nothing else that a pickle may hold is run. Raises TrainingError."""
    import torch

    try:
        found: dict[str, torch.Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError) as e:
        raise TrainingError(f"{file} holds no tensors alone: it is not a checkpoint of verl") from e
    return found


def _lora_meta(actor: Path) -> dict[str, Any] | None:
    meta = actor / "lora_train_meta.json"
    if not meta.exists():
        return None
    lora: dict[str, Any] = json.loads(meta.read_text(encoding="utf-8"))
    return lora


def _merged_state(actor: Path) -> dict[str, torch.Tensor]:
    """The whole policy's weights; those under an adapter from the model that the run began with.

    Raises:
        TrainingError: where that model is gone.
    """
    from transformers import AutoModelForCausalLM

    state, lora = _full_state(actor), _lora_meta(actor)
    if lora is None:
        return state
    start = (actor / START_MODEL).read_text(encoding="utf-8")
    if not is_model(start):
        raise TrainingError(f"{actor} holds the adapter of {start}, which is gone: put it back")
    weights = AutoModelForCausalLM.from_pretrained(start, dtype="float32").state_dict()
    scale = float(lora["lora_alpha"]) / float(lora["r"])
    for name in state:
        if _LORA_A in name:
            layer = name.removesuffix(_LORA_A)
            plain = f"{layer.removeprefix(_WRAPPED)}.weight"
            weights[plain] = weights[plain] + scale * (state[layer + _LORA_B] @ state[name])
    return dict(weights)


def main(arguments: list[str]) -> int:
    """Export what the command line names."""
    cli = argparse.ArgumentParser(prog="export", description=(__doc__ or "").splitlines()[0])
    cli.add_argument("actor", type=Path, help="the actor folder of a checkpoint")
    cli.add_argument("target", type=Path)
    cli.add_argument("--adapter-of", metavar="START_MODEL", help="the trained adapter alone")
    given = cli.parse_args(arguments)
    try:
        if given.adapter_of is not None:
            export_adapter(given.actor, given.target, given.adapter_of)
        else:
            export_model(given.actor, given.target)
    except (CodingFrameworkError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
