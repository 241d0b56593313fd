"""What `cuda-rl eval` is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from coding_framework.cuda.expected.rules import RULES
from coding_framework.errors import UsageError
from coding_framework.types import (
    BaselineName,
    Config,
    DeviceChoice,
    DTypeName,
    PromptVersion,
    RulesName,
    TaskScope,
)

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p of fast_p: KernelBench's."""
KS = (1, 5, 10, 50, 100)


_OF_RULES = {"samples", "baseline"}
TASK_TOKENS = 2048
"""Of a prompt that shows no earlier kernel."""


class AskingOptions(Config):
    """How a model is asked for its answers."""

    server: str | None = None
    """Base URL of an OpenAI-compatible server that has the model."""
    prompts: PromptVersion | None = None
    """Version of the prompts. Default: the one that the model's card names, else v2."""
    turns: int = Field(default=1, ge=1, le=16)
    """Most turns of a conversation."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of an answer. Default: what the model's card names, else 2048 with prompts
    v3, and 1024 with older ones."""
    max_prompt_tokens: int | None = Field(default=None, ge=32)
    """Most tokens of a prompt; a longer one is trimmed by rule. Default: 2048, and with several
    turns as many more as an answer may have, whose kernel the next prompt shows."""
    concurrency: int = Field(default=48, ge=1)
    """Conversations at once."""
    ask_only: bool = False
    """Only ask for the first answers: a server may need the GPU that the judge would time on. The
    same command without it judges them."""
    minutes: float | None = Field(default=None, gt=0.0)
    """Minutes after which no further sample begins; the exit status is then 4, and the same command
    goes on. Default: none."""


class EvalOptions(AskingOptions):
    """What is evaluated, and how."""

    output_dir: Path = Path("outputs") / "eval"
    """Folder of the run. A run that was stopped goes on there. Default: outputs/eval."""
    answers: Path | None = None
    """Answers that exist already, instead of a model: a folder of kernels (KernelBench's too), JSON
    lines, or the folder of a finished evaluation."""
    adapter: str | None = None
    """Folder of a PEFT adapter that is put on the model."""
    card: Path | None = None
    """Folder with the model_card.json of a server's model, or of the model that gave the answers:
    it names the prompts, and what the weights were trained on."""
    dtype: DTypeName = "auto"
    """Of a model that answers here: auto takes bfloat16 where the hardware computes in it."""
    device: DeviceChoice = "auto"
    """Where a model that answers here runs; auto takes a GPU where there is one."""
    tokenizer: str | None = None
    """Folder with the tokenizer of the server's model. Default: four characters count as one token
    of a prompt."""
    rules: RulesName = "ours"
    """Whose rules count beside our own protocol: of KernelBench's problems its own, or those of
    KernelBench-Verified. They say samples and baseline, where you do not."""
    samples: int = Field(default=1, ge=1)
    """Answers to each task. Default: 1, or what the rules say."""
    temperature: float | None = Field(default=None, ge=0.0)
    """Temperature of sampling. Default: 0 for one sample, 1 for several."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the probability that is sampled from."""
    redraws: int = Field(default=0, ge=0, le=8)
    """How often an answer that repeats the code of an earlier turn is drawn again. Its tokens are
    counted."""
    redraw_temperature: float | None = Field(default=None, ge=0.0)
    """Temperature of an answer that is drawn again. Default: as the others."""
    optimizer_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of an answer after the first. Default: as the first."""
    stop_when_correct: bool = False
    """End a conversation with its first correct kernel."""
    stop_without_code: bool = False
    """End a conversation with its first answer without code."""
    seed: int = Field(default=0, ge=0)
    """Seed of the tasks that are drawn and of the sampling."""
    task_scope: TaskScope = "starter"
    """Which tasks a suite of ours draws from: those that ship with receipts, or all judged here."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first tasks of each suite. Default: all."""
    tasks: str | None = None
    """Only the tasks of these names, with commas between. Default: all."""
    family: str | None = None
    """Only tasks of this family. Default: all."""
    tier: int | None = Field(default=None, ge=0, le=3)
    """Only tasks of this tier. Default: all."""
    kernelbench_dir: Path | None = None
    """Checkout of KernelBench, for suites kernelbench:1 to kernelbench:4."""
    k: str | None = None
    """The k of pass@k, with commas between. Default: those of 1, 5, 10, 50, 100 that the samples
    allow."""
    p: str | None = None
    """The p of fast_p, with commas between. Default: KernelBench's, 0 to 2."""
    baseline: BaselineName = "eager"
    """What measured times are compared with; modelled ones always with the naive kernel. Default:
    eager, or what the rules say."""
    ray: str | None = None
    """Judge on the nodes of this Ray cluster: HOST:PORT, auto, or local for a new one here."""
    compare: Path | None = None
    """Folder of a finished run of the same suites: this one is compared with it, task by task."""
    fail_under: str | None = None
    """Gates that the run has to hold, e.g. "pass@1>=0.5, tier2.fast_1>=0.2". Exit status 1 where
    one fails."""
    max_masked: float = Field(default=0.02, ge=0.0, le=1.0)
    """Largest share of samples that faults of ours may keep from a verdict: above it the exit
    status is 3."""
    patience: float = Field(default=600.0, ge=0.0)
    """Seconds that the model's server may be away before the run gives up."""
    kernelbench_out: Path | None = None
    """Also write the run as a folder of KernelBench, which its own analysis reads."""
    hardware: str = "unknown"
    """Name of the hardware in KernelBench's files."""
    wandb: bool | None = None
    """Report to the wandb project CUDA-Evaluation too. Default: where WANDB_API_KEY is set."""

    def answer_tokens(self, prompts: PromptVersion, learnt: int | None = None) -> int:
        """Most tokens of an answer to prompts of a version. learnt: what the model's card says."""
        from coding_framework.agents.prompts import ANSWER_TOKENS  # it loads PyTorch

        return self.max_new_tokens or learnt or ANSWER_TOKENS[prompts]

    def prompt_tokens(self, answer: int) -> int:
        """Most tokens of a prompt, where an answer has so many at most."""
        shown = answer if self.turns > 1 else 0
        return self.max_prompt_tokens or TASK_TOKENS + shown

    @model_validator(mode="before")
    @classmethod
    def _by_rules(cls, given: Any) -> Any:
        rules = RULES.get(given.get("rules", "ours")) if isinstance(given, dict) else None
        return given if rules is None else {**rules.model_dump(include=_OF_RULES), **given}

    @property
    def heat(self) -> float:
        """The temperature that is sampled with."""
        if self.temperature is not None:
            return self.temperature
        return 0.0 if self.samples == 1 else 1.0

    @property
    def ks(self) -> list[int]:
        """Raises UsageError."""
        if self.k is None:
            return [k for k in KS if k <= self.samples]
        asked = [int(k) if k.isascii() and k.isdigit() else 0 for k in _parts(self.k)]
        if not asked or min(asked) < 1:
            raise UsageError(f"--k cannot be {self.k}: give whole numbers of at least 1, e.g. 1,5")
        return sorted({1, *asked})

    @property
    def thresholds(self) -> list[float]:
        """Raises UsageError."""
        if self.p is None:
            return list(THRESHOLDS)
        try:
            asked = sorted({float(p) for p in _parts(self.p)})
        except ValueError:
            asked = []
        if not asked or not all(0 <= p < float("inf") for p in asked):
            raise UsageError(f"--p cannot be {self.p}: give numbers of at least 0, e.g. 0,1,1.5")
        return asked


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
