"""`model_card.json`, beside weights: what they are, by which prompts they speak, what they learnt.

Makers: SFT, the export of RL, and whoever merges an adapter. Consumers: `solve`, which prompts by
it; evaluations and the start of RL, which warn where weights and settings do not belong together.
Weights of an older version have no card: `card_of` makes theirs from the run that they lie in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError

from coding_framework.paths import write_atomic
from coding_framework.store.checkpoints import file_digest, step_of
from coding_framework.store.events import log
from coding_framework.store.folder import RLFolder, SFTFolder, run_of_checkpoint
from coding_framework.store.lines import parsed_lines
from coding_framework.types import PromptVersion, Record

FILE = "model_card.json"
_WEIGHTS = "*.safetensors"


class TrainedOn(Record):
    """What the last training of the weights was about."""

    digest: str
    """SHA-256 of SFT's examples, or of the file of RL's prompts."""
    counts: Mapping[str, int]
    """Of SFT: examples by role. Of RL: "tasks", "prompts" and "steps"."""


class ModelCard(Record):
    """What lies in a folder of weights, a whole model or an adapter."""

    schema_version: Literal[1] = 1
    stage: Literal["base", "sft", "rl", "merged"]
    """What made the weights. "merged": an adapter was merged into its model."""
    base_model: str
    """The model that the first training began with, by the name that was given."""
    prompts: str | None = None
    """Version of the prompts that the weights were trained on; None: on none of ours."""
    answer_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of an answer, where the weights learnt longer ones than their prompts' usual."""
    trained_on: TrainedOn | None = None
    seed: int | None = None
    parent: str | None = None
    """Digest of the card of the weights that these were made from; None: those have no card."""
    framework_version: str = Field(default_factory=lambda: version("coding-framework"))
    date: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    weights: Mapping[str, str] = Field(default_factory=dict)
    """Digest of each file of the weights (as in `store.checkpoints`), by name."""

    @property
    def digest(self) -> str:
        """Address of the card, and by `weights` of what it describes. Cards of before there was
        `answer_tokens` keep theirs."""
        unknown = {"answer_tokens"} if self.answer_tokens is None else None
        return hashlib.sha256(self.model_dump_json(exclude=unknown).encode()).hexdigest()

    def merged(self) -> ModelCard:
        """Of the model that has this card's adapter merged. It is dated as the adapter: made again
        elsewhere, it is the same model, and what was begun with it goes on."""
        return self.model_copy(update={"stage": "merged", "parent": self.digest, "weights": {}})


def write_card(folder: Path, card: ModelCard) -> ModelCard:
    """Write the card beside the weights in `folder`; gives it with their digests."""
    told = card.model_copy(update={"weights": _digests(folder)})
    write_atomic(folder / FILE, told.model_dump_json(indent=1) + "\n")
    return told


def _digests(folder: Path) -> dict[str, str]:
    return {p.name: file_digest(p) for p in sorted(folder.glob(_WEIGHTS))}


def card_of(folder: Path) -> ModelCard | None:
    """The card of the weights in a folder, of a run of an older version too; None where nobody of
    us made them."""
    try:
        return ModelCard.model_validate_json((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _of_older_version(folder)
    except (OSError, ValidationError, UnicodeDecodeError) as e:
        log.warning("model_card_unreadable", path=str(folder / FILE), why=str(e).splitlines()[0])
        return None


def prompts_for(weights: Path | None, *, is_adapter: bool) -> PromptVersion:
    """Prompts that the weights in a folder were trained on. For a model that nobody of us trained,
    and where there is no folder (a server, a name on a hub), v2; for such an adapter v1."""
    card = card_of(weights) if weights is not None else None
    if card is None or card.prompts is None:
        return "v1" if is_adapter else "v2"
    return next((v for v in get_args(PromptVersion) if v == card.prompts), "v2")


def answers_for(weights: Path | None) -> int | None:
    """Most tokens of an answer that the weights in a folder learnt to give, where these are more
    than their prompts' usual."""
    card = card_of(weights) if weights is not None else None
    return card.answer_tokens if card is not None else None


def check_card(folder: Path, prompts: str) -> ModelCard | None:
    """The card, with a warning where it is of other weights, or where they know other prompts than
    those that they are about to be asked by."""
    card = card_of(folder)
    if card is None:
        return None
    if card.weights and card.weights != _digests(folder):
        log.warning("model_card_of_other_weights", folder=str(folder))
    if card.prompts is not None and card.prompts != prompts:
        log.warning("other_prompts", folder=str(folder), trained=card.prompts, asked=prompts)
    return card


def exported_card(actor: Path) -> ModelCard | None:
    """Of what is exported from the `actor` folder of an RL run's checkpoint, or from its best
    weights; None where the folder lies in no run."""
    run = run_of_checkpoint(actor)
    config = _json(run.config) if run is not None else {}
    if run is None or not config:
        return None
    step = int(run.best_step.read_text()) if actor.absolute() == run.best else step_of(actor.parent)
    tasks = list(parsed_lines(run.prompts, lambda x: json.loads(x)["reward_model"]["ground_truth"]))
    parent = card_of(Path(config["model_path"]))
    return ModelCard(
        stage="rl",
        base_model=parent.base_model if parent is not None else config["model_path"],
        prompts=config["prompts"],
        answer_tokens=parent.answer_tokens if parent is not None else None,
        trained_on=TrainedOn(
            digest=hashlib.sha256(run.prompts.read_bytes()).hexdigest(),
            counts={"tasks": len(set(tasks)), "prompts": len(tasks), "steps": step},
        ),
        seed=config["seed"],
        parent=parent.digest if parent is not None else None,
    )


def _of_older_version(folder: Path) -> ModelCard | None:
    """From the run beside: SFT left its config.json next to the model and the adapters; RL left a
    result.json next to its models, and one folder higher the adapters of its roles."""
    sft = _json(SFTFolder(folder.parent).config)
    if "prompt_version" in sft:
        asked = sft.get("config", {})
        return ModelCard(
            stage="sft",
            base_model=str(asked.get("base_model", "")),
            prompts=sft["prompt_version"],
            seed=asked.get("seed"),
        )
    for root in (folder.parent, folder.parent.parent):
        run = RLFolder(root)
        if "best_model" in _json(run.result):
            asked = _json(run.config)
            return ModelCard(
                stage="rl",
                base_model=str(asked.get("model_path", "")),
                prompts=asked.get("prompts", "v1"),
                seed=asked.get("seed"),
            )
    return None


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; {} where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
