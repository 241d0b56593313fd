"""An adapter in eight bits, so that a repository can keep one.

A row of a weight is whole numbers of -127 to 127 times a power of two. Such values have an exact
bfloat16 form, so an adapter that was rounded (`rounded`) is stored and restored to the bit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from coding_framework.errors import UsageError
from coding_framework.paths import write_json_atomic
from coding_framework.store.model_card import FILE as CARD
from coding_framework.store.model_card import ModelCard, card_of, write_card

WEIGHTS = "adapter_model.safetensors"
SMALL = "adapter_model.int8.safetensors"
BESIDE = ("adapter_config.json", CARD, "start.json")
ARM = "arm.json"
"""Beside a stored adapter: whose it is, and what its training left word of."""
_EXPONENT = ".exponent"


def _parts(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows x columns of int8, rows of int8): weight = numbers * 2 ** exponent, rounded."""
    weight = weight.float()
    largest = weight.abs().amax(dim=1).clamp_min(2.0**-100)
    exponent = torch.ceil(torch.log2(largest / 127))
    exponent += largest / 2**exponent > 127  # log2 was rounded down
    return torch.round(weight / 2 ** exponent[:, None]).to(torch.int8), exponent.to(torch.int8)


def _whole(numbers: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    return (numbers.float() * 2.0 ** exponent.float()[:, None]).bfloat16()


def rounded(weight: torch.Tensor) -> torch.Tensor:
    """The weight, (rows, columns), as it comes back from eight bits; bfloat16."""
    return _whole(*_parts(weight))


def store(adapter: Path, folder: Path) -> Path:
    """Write a rounded adapter into a folder that a repository can keep; its file. Raises UsageError
    where eight bits do not hold it."""
    small: dict[str, torch.Tensor] = {}
    for name, weight in load_file(adapter / WEIGHTS).items():
        numbers, exponent = _parts(weight)
        if not torch.equal(_whole(numbers, exponent), weight.bfloat16()):
            raise UsageError(f"{adapter} was not rounded: run its arm by a plan of `bits: 8`")
        small |= {name: numbers.contiguous(), name + _EXPONENT: exponent}
    folder.mkdir(parents=True, exist_ok=True)
    _copy_beside(adapter, folder)
    _name_base(folder)
    save_file(small, folder / SMALL)
    return folder / SMALL


def _name_base(folder: Path) -> None:
    """Let PEFT's settings name the base model as the card does, not by where it lay."""
    card, path = _card(folder), folder / "adapter_config.json"
    if card is not None and path.exists():
        told = json.loads(path.read_text())
        write_json_atomic(path, {**told, "base_model_name_or_path": card.base_model})


def restore(folder: Path, adapter: Path) -> None:
    """Write the stored adapter as PEFT reads it. Raises UsageError where there is none."""
    if not (folder / SMALL).is_file():
        raise UsageError(f"{folder} has no {SMALL}: give a folder that `store` wrote")
    small = load_file(folder / SMALL)
    names = [name for name in small if not name.endswith(_EXPONENT)]
    state = {name: _whole(small[name], small[name + _EXPONENT]) for name in names}
    put(state, folder, adapter)


def put(state: Mapping[str, torch.Tensor], source: Path, adapter: Path) -> None:
    """Write weights (rows, columns) as PEFT reads them into the folder `adapter`, made where it is
    not there, with what lies beside those of `source`. The card then tells these weights."""
    adapter.mkdir(parents=True, exist_ok=True)
    _copy_beside(source, adapter)
    contiguous = {name: weight.contiguous() for name, weight in state.items()}
    save_file(contiguous, adapter / WEIGHTS, metadata={"format": "pt"})
    card = _card(adapter)
    if card is not None:
        write_card(adapter, card)


def _card(folder: Path) -> ModelCard | None:
    """The card that lies there; an older version's files are not asked."""
    return card_of(folder) if (folder / CARD).exists() else None


def _copy_beside(source: Path, target: Path) -> None:
    for name in BESIDE:
        if (source / name).exists():
            shutil.copy(source / name, target / name)
