"""What the commands that do much work are told."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from coding_framework.types import BackendChoice, Config, PromptVersion, Split
from coding_framework.wiring import JudgeSettings

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


class ListenOptions(Config):
    """Where a server of this machine's own listens, and to whom."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but this machine's own needs a file of tokens."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which the first line names."""
    tokens: Path = Path("deployment/tokens")
    """File of tokens; without one only this machine is served. Default: deployment/tokens."""


class TaskSelection(Config):
    """Which tasks of the catalogue a command is about."""

    scope: Literal["synthesis", "modules"] = "synthesis"
    """synthesis: functions and workloads that we synthesise; modules: PyTorch modules as people
    write them."""
    split: Split | None = None
    """Only tasks of this side of the split: training, held out, or from outside."""
    family: str | None = None
    """Only tasks of this family, for example reduction."""
    tier: int | None = Field(default=None, ge=0, le=3)
    """Only tasks of this tier, from 0 (one operation) to 3 (whole layers)."""
    count: int | None = Field(default=None, ge=0)
    """At most so many tasks, balanced over the families. Default: all."""


class MixtureOptions(Config):
    """What the mixture is built from."""

    total: int = Field(default=12_000, ge=12)
    """Examples of the whole mixture; each part has its share."""
    mistakes: Path | None = None
    """Repairs of the model's own mistakes (`cuda-rl data mistakes`). Default: that part is left
    out."""
    answer_tokens: int = Field(default=2048, ge=64)
    """Most tokens of an answer, of which 2,048 count as 4,800 characters: longer kernels are not
    shown. Answer with as many then (`--max-new-tokens`)."""
    receipts: Path | None = None
    """File of the judge's receipts; those of this run are added. Default: the one in this machine's
    cache."""
    backend: BackendChoice = "emulator"
    """What judges kernels without a receipt. Only a GPU measures which one is the fastest."""
    unjudged: bool = False
    """Take kernels without a verdict, as they are synthesised. Their speed is what --receipts
    measured of their family and level, else it follows from the level. No prompt shows a verdict,
    and the manifest counts them. Without --output nothing is written."""
    spare: int = Field(default=0, ge=0)
    """Modules beyond the catalogue, of each family of level 2; one kernel of each."""
    wider: int = Field(default=0, ge=0)
    """The same of each family of level 1, at most: more axes, ranks and windows than the catalogue
    has, and elementwise operations after a layer."""
    other_sizes: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the answers to modules that are shown at sizes of their own, which the catalogue has
    not, and with other names of their constants; with --unjudged. A policy that knows three sizes
    of a family takes the size for the family."""
    seed: int = Field(default=0, ge=0)
    """Seed of the functions that are drawn and of the order."""


class SolveOptions(Config):
    """What the command line says."""

    task: str
    """Name of a task, a task file, or FILE.py:CLASS for a PyTorch module of your own."""
    inputs: str = ""
    """With FILE.py:CLASS: what forward takes, by commas: 4x128x256 for a tensor, 4x128:int64:1000
    for whole numbers below 1000, 0.5 for a number."""
    init: str = ""
    """With FILE.py:CLASS: the arguments that the module is made with, as '256, bias=False'."""
    model: str = DEFAULT_MODEL
    """Model of the agents: a name on the Hugging Face hub, a local folder, or that of a training
    run; with --server the name that the server knows."""
    adapter: str | None = None
    """Folder of a PEFT adapter that is put on the model."""
    optimizer_adapter: str | None = None
    """Folder of another adapter for the optimizer. Default: the one of --adapter."""
    server: str | None = None
    """Base URL of an OpenAI-compatible server that has --model."""
    turns: int = Field(default=5, ge=1, le=16)
    """Most turns of the conversation."""
    candidates: int = Field(default=1, ge=1, le=64)
    """Answers that are judged in each turn; the best of them goes on."""
    beam: int = Field(default=1, ge=1, le=64)
    """Width of a beam search: each turn goes on from this many of the best kernels so far, which
    differ in their device code, and gives each its share of the candidates."""
    redraws: int = Field(default=3, ge=0, le=8)
    """How often an answer that repeats the code of an earlier turn is drawn again; a repeat that is
    left is judged as any answer. Of our SFT policy's later turns about held-out modules, drawn at
    0.6, 3% still repeated with three redraws at 1.0, and 17% with one at 0.6."""
    redraw_temperature: float = Field(default=1.0, ge=0.0)
    """Temperature of an answer that is drawn again."""
    parts: bool = False
    """Take a module of many steps apart: a conversation about each operation, with the elementwise
    ones beside it, and their kernels joined and judged as one."""
    from_scratch: bool = False
    """Let the generator write the first kernel. Default: the compiler writes it (`cuda-rl write`),
    and the optimizer goes on from there."""
    reward: str = "weighted"
    """Preset of the reward: weighted, gated, kevin or correct; milestones pays measured times,
    which a GPU has."""
    stop_reward: float | None = None
    """Reward at which a correct kernel ends the conversation. Default: none does."""
    temperature: float = Field(default=0.7, ge=0.0)
    """Temperature of sampling; 0 takes the likeliest token each time."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of an answer. Default: what the model's card names, else 2048 with prompts
    v3, and 1024 with older ones."""
    prompts: PromptVersion | None = None
    """Version of the prompts. v1 is short, for models that were trained here; v3 also says what a
    kernel is handed; v2 explains the form of an answer, for
    all others. Default: the one that the model's card names, else v2."""
    tester: Literal["off", "rules", "model"] = "rules"
    """Who looks for inputs that break a kernel: nobody, fixed rules, or the model."""
    seed: int = Field(default=0, ge=0)
    output_dir: Path | None = None
    """Folder of the kernel, its verdict and the transcript. Default: outputs/solve/TASK."""
    into: Path | None = None
    """Folder of a kernel registry that a correct kernel is put into, with its launch templates."""
    keys: Path = Path("deployment/keys")
    """Folder of the key that signs the receipt there."""
    key: str = "judge"
    """Name of that key."""
    judge: JudgeSettings = JudgeSettings()

    @model_validator(mode="after")
    def _parents_have_candidates(self) -> Self:
        if self.beam > self.candidates:
            raise ValueError(
                f"beam={self.beam} needs as many candidates a turn: set --candidates {self.beam} "
                "or more"
            )
        return self

    @property
    def conversation_id(self) -> str:
        """The same options are the same conversation; the judge's settings and the folder aside."""
        # As before there were these settings:
        later = {
            "inputs": "",
            "init": "",
            "beam": 1,
            "redraws": 0,
            "redraw_temperature": None,
            "parts": False,
            "from_scratch": True,
        }
        unset = {name for name, value in later.items() if getattr(self, name) == value}
        aside = {"output_dir", "into", "keys", "key", "judge"} | unset
        said = self.model_dump_json(exclude=aside)
        return hashlib.sha256(said.encode()).hexdigest()[:12]
