"""What `cuda-rl rft` is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from coding_framework.run.eval_options import AskingOptions
from coding_framework.types import DeviceChoice, DTypeName, TaskPool, TaskScope

MOST_TASKS = 3000
"""Training tasks that are answered where no number is said."""
LEARNING = (
    "epochs", "learning_rate", "batch_size", "by_length", "gradient_checkpointing", "max_length",
    "lora_r", "lora_alpha", "quantization", "device", "dtype", "num_gpus", "seed", "save_every",
)  # fmt: skip
"""Fields that say how to train, as `SFTConfig` names them."""


class RejectionOptions(AskingOptions):
    """What is sampled, kept and learnt."""

    output_dir: Path = Path("outputs") / "rft"
    """Folder of the run. A run that was stopped goes on there. Default: outputs/rft."""
    pool: TaskPool = "functions"
    """Training tasks to answer: functions that we synthesise, or PyTorch modules as people write
    them. A module that the SFT mixture shows (`cuda-rl data mixture`) is left out."""
    tasks: int | None = Field(default=None, ge=1)
    """Training tasks that are answered. Default: 3000, or all of them where there are fewer."""
    skip_tasks: int = Field(default=0, ge=0)
    """Tasks at the head of the list that are left out, because SFT has shown them."""
    task_evidence: Path | None = None
    """Answer only tasks that an earlier run's task_evidence.jsonl calls open: those that 10 to 80%
    of the samples solve, or whose speeds lie far apart. Default: the pool's tasks, whatever is
    known of them."""
    max_task_ops: int | None = Field(default=None, ge=1)
    """With --pool functions: most operations of a task. Default: any."""
    max_task_tier: int | None = Field(default=None, ge=0)
    """With --pool functions: hardest tier of a task's family; 0: each element for itself. Default:
    any."""
    task_scope: TaskScope = "starter"
    """With --pool functions: tasks that ship with receipts, or all that this machine has judged."""
    samples: int = Field(default=8, ge=1)
    """Answers to each task."""
    turns: int = Field(default=1, ge=1, le=16)
    """Turns of each conversation: with 2 the policy's own repairs and improvements are learnt,
    too."""
    temperature: float = Field(default=1.0, ge=0.0)
    """Temperature of sampling."""
    least_speed: float = Field(default=0.9, ge=0.0, le=1.0)
    """Share of the speed of the task's fastest kernel that a kernel must have to be learnt. Repairs
    need not: what they teach is the mistake."""
    keep_per_task: int = Field(default=4, ge=1)
    """Most kernels of a task that are learnt, the fastest first; each has other device code."""
    epochs: float = Field(default=1.0, gt=0.0)
    """Passes over the chosen kernels."""
    learning_rate: float | None = Field(default=None, gt=0.0)
    """Highest learning rate. Default: that of run_sft_training.py."""
    batch_size: int | None = Field(default=None, ge=1)
    """Examples of one forward and backward pass. Default: that of run_sft_training.py."""
    by_length: bool = False
    """Make batches of examples of about equal length (run_sft_training.py)."""
    num_gpus: int | None = Field(default=None, ge=1)
    """GPUs of this machine that train together (run_sft_training.py). Default: one."""
    gradient_checkpointing: bool | None = None
    """Compute activations again in the backward pass. Default: on a GPU."""
    save_every: int | None = Field(default=None, ge=1)
    """Steps from one checkpoint of the training to the next. Default: that of
    run_sft_training.py."""
    max_length: int | None = Field(default=None, ge=64)
    """Most tokens of prompt and answer together; longer examples are left out. Default: that of
    run_sft_training.py."""
    lora_r: int | None = Field(default=None, ge=1)
    """Rank of the LoRA adapter. Default: that of run_sft_training.py."""
    lora_alpha: int | None = Field(default=None, ge=1)
    """Scale of the LoRA adapter. Default: that of run_sft_training.py."""
    quantization: Literal["auto", "nf4", "none"] | None = None
    """Quantization of the frozen base model. Default: nf4 on a GPU, none on a CPU."""
    device: DeviceChoice = "auto"
    """Where the model trains; auto takes a GPU where there is one."""
    dtype: DTypeName = "auto"
    """In which it answers and learns: auto takes bfloat16 where the hardware computes in it."""
    seed: int = Field(default=0, ge=0)
    """Seed of the tasks that are drawn, the sampling and the training."""
    minutes: float | None = Field(default=None, gt=0.0)
    """Minutes after which no sample begins, and after which the training stops at the end of a
    step, with exit status 4; the same command goes on. Default: none."""
    sample_only: bool = False
    """Sample and choose, and do not train."""
