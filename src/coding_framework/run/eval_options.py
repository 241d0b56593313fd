"""What `cuda-rl eval` is asked for."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from coding_framework.types import Config, PromptVersion, TaskScope


class EvalOptions(Config):
    """What is evaluated, and how."""

    output_dir: Path = Path("outputs") / "eval"
    """Folder of the run. A run that was stopped goes on there. Default: outputs/eval."""
    adapter: str | None = None
    """Folder of a PEFT adapter that is put on the model."""
    server: str | None = None
    """Base URL of an OpenAI-compatible server that has the model."""
    prompts: PromptVersion | None = None
    """Version of the prompts. Default: the one that the model's card names, else v2."""
    samples: int = Field(default=1, ge=1)
    """Answers to each task."""
    temperature: float | None = Field(default=None, ge=0.0)
    """Temperature of sampling. Default: 0 for one sample, 1 for several."""
    max_new_tokens: int = Field(default=1024, ge=1)
    """Most tokens of an answer."""
    turns: int = Field(default=1, ge=1, le=16)
    """Most turns of a conversation."""
    seed: int = Field(default=0, ge=0)
    """Seed of the tasks that are drawn and of the sampling."""
    concurrency: int = Field(default=48, ge=1)
    """Conversations at once."""
    task_scope: TaskScope = "starter"
    """Which tasks a suite of ours draws from: those that ship with receipts, or all judged here."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first tasks of each suite. Default: all."""
    family: str | None = None
    """Only tasks of this family. Default: all."""
    tier: int | None = Field(default=None, ge=0, le=3)
    """Only tasks of this tier. Default: all."""
    kernelbench_dir: Path | None = None
    """Checkout of KernelBench, for suites kernelbench:1 to kernelbench:4."""
    compare: Path | None = None
    """Folder of a finished run of the same suites: this one is compared with it, task by task."""
    fail_under: str | None = None
    """Gates that the run has to hold, e.g. "pass@1>=0.5, tier2.fast_1>=0.2". Exit status 1 where
    one fails."""
    max_masked: float = Field(default=0.02, ge=0.0, le=1.0)
    """Largest share of samples that faults of ours may keep from a verdict: above it the exit
    status is 3."""
