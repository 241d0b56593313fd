"""What the experiment is asked to do: sizes and settings, as data. `h200.yaml` has the registered
ones, `half_hour.yaml` those that fit into half an hour of one GPU, `toy.yaml` those of a test."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from coding_framework.errors import UsageError, first_complaint
from coding_framework.types import Config, DeviceChoice, PromptVersion, TaskPool

Arm = Literal[
    "sft",
    "rft",
    "rl",
    "control",
    "sizes",
    "people",
    "candidates",
    "parts",
    "feedback",
    "search",
    "kernelbench",
]


class Evaluated(Config):
    """Tasks, and samples of each."""

    tasks: int = Field(ge=1)
    samples: int = Field(ge=1)


class Searched(Config):
    """How the search arm looks for a kernel: candidates x turns of each task."""

    suites: tuple[str, ...] = ()
    """Suites of `cuda-rl eval`; (): the held-out tasks."""
    tasks: int = Field(ge=1)
    """The first of each suite."""
    candidates: int = Field(default=16, ge=1)
    turns: int = Field(default=3, ge=1)
    beam: int = Field(default=4, ge=1)
    temperature: float = Field(default=1.0, ge=0.0)
    judges: int | None = Field(default=None, ge=1)
    """Judges at once; None: as `judge` has it. On a GPU each that waits holds 1.5 GiB of the memory
    that others need."""


class Conversed(Config):
    """How the feedback arm sets turns with feedback against samples of the first prompt."""

    tasks: int = Field(ge=1)
    samples: int = Field(default=2, ge=1)
    """Conversations of each task; of the first prompt as many times `turns + 1`."""
    turns: int = Field(default=3, ge=2)
    redraws: int = Field(default=1, ge=0)
    """How often an answer that repeats an earlier one is drawn again."""
    redraw_temperature: float | None = Field(default=None, ge=0.0)
    """Of such an answer; None: the same."""
    temperature: float = Field(default=0.6, gt=0.0)


class Plan(Config):
    """An experiment. Maker: a person, before the first run. Consumer: `learning.py`."""

    base_model: str
    device: DeviceChoice = "auto"
    pool: TaskPool = "modules"
    """What is trained and measured on: modules; functions in a test."""
    prompts: PromptVersion = "v3"
    mixture: int = Field(default=12_000, ge=0)
    """Examples of the SFT mixture; 0: SFT learns functions alone (`sft.num_examples`)."""
    unjudged: bool = False
    """Whether the mixture takes kernels as synthesised."""
    answer_tokens: int = Field(default=2048, ge=64)
    """Most tokens of a kernel that the mixture shows."""
    spare: int = Field(default=0, ge=0)
    """Modules beyond the catalogue in the mixture, of each family of level 2."""
    wider: int = Field(default=0, ge=0)
    """The same of each family of level 1, at most."""
    graphs: int = Field(default=0, ge=0)
    """Modules as graphs in the mixture."""
    pieces: int = Field(default=0, ge=0)
    """Parts of such modules in it."""
    other_sizes: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the mixture's answers to modules that are shown at sizes of their own."""
    mistakes: str | None = None
    """Repairs of a policy's own mistakes, for the mixture: a file beside the plans, compressed, as
    `cuda-rl data mistakes` wrote it."""
    sft_from: str | None = None
    """A stored policy beside the plan that SFT goes on from; None: the base model."""
    sft: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `SFTConfig`."""
    rft: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `RejectionOptions`."""
    rl: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `MultiTurnRLConfig`."""
    bits: Literal[8, 16] = 16
    """In which a weight of an adapter is kept: bfloat16, or rounded so that eight bits hold it."""
    rl_from: Literal["rft", "sft"] = "rft"
    """Arm from whose policy RL and its control start."""
    rl_tasks: int = Field(default=2100, ge=1)
    """Training tasks that RL and its control draw from."""
    control_samples: int | None = Field(default=None, ge=1)
    """Samples of each of RL's tasks that its control takes, which then may run beside it; None: as
    many as RL's verdicts and tokens need."""
    rl_skip: int = Field(default=0, ge=0)
    """So many before them are left out: those that `mistakes` were made on."""
    validation: Evaluated
    """By which the temperature is chosen."""
    temperatures: tuple[float, ...] = Field(min_length=1)
    test: Evaluated
    feedback: Conversed | None = None
    search: Searched
    sampling: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `EvalOptions` for all evaluations: limits of tokens, concurrency."""
    serve: str | None = None
    """Command of a server that speaks OpenAI's protocol at {port}, for samples and evaluations;
    {model}, {python} and {gpu} stand for the folder, the interpreter and the GPU of
    `--server-gpu`. None: the model answers in the process that asks, one batch at a time."""
    judge: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of `JudgeSettings` for all judging but RL's, which is in `rl.judge_args`."""

    @property
    def digest(self) -> str:
        """Equal exactly where the plan is; a setting that a later version knows changes nothing
        where it has its default."""
        return hashlib.sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()


def read_plan(path: Path) -> Plan:
    """The plan of a file. Raises UsageError."""
    try:
        return Plan.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as e:
        raise UsageError(f"the plan {path} cannot be read ({e.strerror}): give a file") from e
    except yaml.YAMLError as e:
        raise UsageError(f"the plan {path} is no YAML: mend it") from e
    except ValidationError as e:
        raise UsageError(f"the plan {path}: {first_complaint(e, '')}") from e
