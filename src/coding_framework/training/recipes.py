"""Recipe files (`configs/*.yaml`): changes to the defaults of SFT, RL and the whole run, as data.

One file serves all root scripts: each reads its section. What a flag says wins over the file, and
the file over the defaults of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from coding_framework.errors import UsageError, first_complaint
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.sft_config import SFTConfig
from coding_framework.types import Config, DeviceChoice


class RecipeFile(Config):
    """The sections of a file. Maker: a person. Consumers: the root scripts."""

    device: DeviceChoice = "auto"
    """Where the models run, which also decides whose defaults hold; auto takes a GPU where there is
    one.

    The sections change `SFTConfig.cpu()` and `MultiTurnRLConfig.cpu()`, or the plain configs."""
    base_model: str | None = None
    """Model to start from: a name on the Hugging Face hub, a local folder, or a packaged model.
    Default: SmolLM2-135M-Instruct on a CPU, Qwen2.5-Coder-1.5B-Instruct on a GPU."""
    sft: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `SFTConfig`."""
    rl: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `MultiTurnRLConfig`."""
    run: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `run.recipe.Recipe`: the evaluation, and which tasks."""


def read_recipe(path: Path | str | None) -> RecipeFile:
    """The file's sections; an empty recipe for None.

    Raises:
        UsageError: where the file cannot be read or says something unknown.
    """
    if path is None:
        return RecipeFile()
    import yaml

    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        return RecipeFile.model_validate(found or {})
    except (OSError, UnicodeDecodeError) as e:
        what = getattr(e, "strerror", None) or "not UTF-8"
        raise UsageError(f"the recipe {path} cannot be read ({what}): see configs/") from e
    except yaml.YAMLError as e:
        where = " ".join(str(getattr(e, "problem_mark", "")).split())
        raise UsageError(f"the recipe {path} is not YAML ({where}): see configs/") from e
    except ValidationError as e:
        raise UsageError(f"the recipe {path}: {first_complaint(e, '')}") from e


def on_cpu(device: DeviceChoice) -> bool:
    """Whether the CPU's defaults hold. Imports torch where that is not said."""
    if device != "auto":
        return device == "cpu"
    import torch

    return not torch.cuda.is_available()


def require_gpus(device: DeviceChoice, count: int | None, *, lower: str = "--num-gpus") -> None:
    """Raises UsageError where fewer GPUs are here than were asked for; `device` "cpu" means that so
    many training processes on the CPU are wanted. lower: the settings that ask for them."""
    wanted = count or 1
    if device == "cpu" or (device == "auto" and wanted == 1):
        return
    import torch

    found = torch.cuda.device_count()
    if found < wanted:
        raise UsageError(
            f"{wanted} GPUs were asked for and {found} are here: lower {lower}, or say --device "
            f"cpu for {wanted} processes on the CPU"
        )


def sft_config(recipe: RecipeFile, flags: Mapping[str, Any]) -> SFTConfig:
    """The recipe with the flags on top. Raises UsageError, which names the flag, or the setting of
    the recipe's section, that is wrong."""
    base = {} if recipe.base_model is None else {"base_model": recipe.base_model}
    values = {"device": recipe.device, **base, **recipe.sft, **flags}
    if values["device"] == "auto":  # dry runs may name a GPU that is elsewhere
        require_gpus("auto", values.get("num_gpus"))
    cpu = on_cpu(values["device"])
    try:
        return SFTConfig.cpu(**values) if cpu else SFTConfig.model_validate(values)
    except ValidationError as e:
        raise UsageError(_complaint(e, "sft", recipe.sft, flags)) from e


def rl_config(recipe: RecipeFile, flags: Mapping[str, Any]) -> MultiTurnRLConfig:
    """The recipe with the flags on top; `device` may be "auto". Raises UsageError."""
    values = {**recipe.rl, **flags}
    device = values.pop("device", recipe.device)
    if device == "auto":
        require_gpus("auto", values.get("num_gpus"))
    cpu = on_cpu(device)
    values["judge_args"] = {**recipe.rl.get("judge_args", {}), **flags.get("judge_args", {})}
    try:
        return MultiTurnRLConfig.cpu(**values) if cpu else MultiTurnRLConfig.model_validate(values)
    except ValidationError as e:
        raise UsageError(_complaint(e, "rl", recipe.rl, flags)) from e


def _complaint(
    error: ValidationError, section: str, of_file: Mapping[str, Any], flags: Mapping[str, Any]
) -> str:
    """The first complaint, which blames the recipe's section for what is said there alone."""
    place = error.errors()[0]["loc"]
    from_file = bool(place) and place[0] in of_file and place[0] not in flags
    return (
        f"the recipe's {section}: {first_complaint(error, '')}"
        if from_file
        else (first_complaint(error))
    )
