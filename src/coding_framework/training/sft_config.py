"""What SFT is told and what it leaves: its configuration and its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from coding_framework.agents.prompts import TAUGHT_PROMPTS
from coding_framework.data.provenance import ARCHIVE
from coding_framework.store.records import SFTEpoch
from coding_framework.types import (
    Config,
    DataSource,
    DeviceChoice,
    DTypeName,
    GeneratorTarget,
    PromptVersion,
    Record,
)


class SFTConfig(Config):
    """How SFT runs. Defaults are the documents' recipe for a GPU; `cpu()` gives what a 135M model
    learns from in minutes on 2 cores."""

    also_called: ClassVar[Mapping[str, str]] = {
        "qlora_r": "lora_r",
        "qlora_alpha": "lora_alpha",
        "qlora_dropout": "lora_dropout",
    }

    base_model: str = "Qwen/Qwen2.5-Coder-1.5B-Instruct"
    """Model to start from: a local Hugging Face folder, a name on the hub, or a packaged model
    (`agents.models`)."""
    start_adapter: str | None = None
    """Folder of a PEFT adapter of the base model, with the same rank and scale, whose weights
    training goes on from. Default: fresh ones."""
    output_dir: str = "sft_checkpoints"
    """Folder of adapters, merged model, checkpoints and metrics."""
    num_examples: int = Field(default=500, ge=0)
    """Examples for the generator."""
    optimizer_examples: int | None = Field(default=None, ge=0)
    """Examples for the optimizer. Default on a GPU: as many as for the generator."""
    per_role: bool = False
    """Train an adapter for each role on its own examples, in place of one adapter on those of both.

    RL goes on from the two with policy per_role."""
    data: DataSource = "synthetic"
    """Where the generator's examples are from: synthesised kernels, the AI CUDA Engineer Archive,
    or mixed, which is half of each. The optimizer's are always synthesised.

    The archive's kernels are judged here first, once: only correct ones are learnt."""
    archive: str = ARCHIVE
    """With --data archive or mixed: a file or folder of the archive's rows (.jsonl, .parquet), or
    its name on the hub. Where it cannot be read, synthesised kernels are learnt, and the result
    says so."""
    generator_target: GeneratorTarget = "naive"
    """Which kernel of a task the generator learns: the naive one, or the fastest at real sizes,
    which is a longer answer.

    The held-out loss is taken on the same kind."""
    extra_examples: str | None = None
    """File of examples that are learnt beside those drawn, all of them: repairs of a model's own
    mistakes (`cuda-rl data mistakes`), or another built set.

    They are taken whatever `max_task_ops` says."""
    max_task_ops: int | None = Field(default=None, ge=1)
    """Most operations of a task's composition. Default on a GPU: any."""
    epochs: float = Field(default=3.0, gt=0.0)
    """Passes over the examples."""
    max_task_tier: int | None = Field(default=None, ge=0)
    """Hardest tier of a task's family; 0: each element for itself. Default: any."""
    max_steps: int | None = Field(default=None, ge=1)
    """Most optimizer steps. Default: as many as the epochs have."""
    batch_size: int = Field(default=4, ge=1)
    """Examples of one forward and backward pass."""
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    """Batches of one optimizer step."""
    num_gpus: int = Field(default=1, ge=1)
    """GPUs of this machine that train together; each has batches of its own, so that an optimizer
    step learns so many times as many examples. On a CPU: processes, which share it."""
    learning_rate: float = Field(default=2e-4, gt=0.0)
    """Highest learning rate; it grows at the beginning and falls to the end."""
    warmup_ratio: float = Field(default=0.05, ge=0.0, lt=1.0)
    """Share of the steps over which the learning rate grows from 0."""
    prompts: PromptVersion = TAUGHT_PROMPTS
    """Version of the prompts that are learnt. v3 says what a kernel is handed, and is longer than
    v1 (by 95 tokens at the median)."""
    max_length: int = Field(default=2048, ge=64)
    """Most tokens of prompt and answer together; longer examples are left out and counted."""
    packing: bool = True
    """Put the examples of a batch into one row, masked from each other, instead of padding each to
    the longest.

    The batches, and so the gradients, are the same. The mask keeps attention from its fastest
    kernels, and attention works on the whole row."""
    by_length: bool = False
    """Make batches of examples of about equal length, and pack nothing: little is padded, and
    attention needs no mask, which lets PyTorch take its fastest kernel."""
    gradient_checkpointing: bool | None = None
    """Compute activations again in the backward pass, which costs a third of the time, instead of
    keeping them. Default: on a GPU."""
    minutes: float | None = Field(default=None, gt=0.0)
    """Minutes after which the run stops at the end of a step, with exit status 4; the same command
    goes on. Default: none."""
    lora_r: int = Field(default=16, ge=1)
    """Rank of the LoRA adapter."""
    lora_alpha: int = Field(default=32, ge=1)
    """Scale of the LoRA adapter, as in PEFT."""
    lora_dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Dropout of the LoRA adapter."""
    lora_layers: int | None = Field(default=None, ge=1)
    """Adapt only so many of the model's last layers; the backward pass stops below them. Default:
    all."""
    quantization: Literal["auto", "nf4", "none"] = "auto"
    """Quantization of the frozen base model. nf4 is QLoRA by bitsandbytes; auto takes nf4 on a GPU
    and none on a CPU."""
    device: DeviceChoice = "auto"
    """Where the model trains; auto takes a GPU where there is one."""
    dtype: DTypeName = "auto"
    """Of matrix products; the adapter is float32. auto: bfloat16 where the hardware computes in it,
    else float32, which is then faster."""
    save_every: int = Field(default=50, ge=1)
    """Steps from one checkpoint to the next; the end of each epoch has one too."""
    held_out_examples: int = Field(default=64, ge=0)
    """About so many examples of held-out tasks, whose loss is taken before training and after each
    epoch; 0: none.

    Each costs a forward pass."""
    held_out_tasks: int = Field(default=32, ge=0)
    """Held-out tasks whose answers are judged after each epoch; 0: none."""
    wandb: bool | None = None
    """Report to the wandb project CUDA-SFT-Training too. Default: where WANDB_API_KEY is set."""
    seed: int = 0
    """Seed of the examples, their order and the adapter's first weights, where these are fresh."""

    @classmethod
    def cpu(cls, **changes: Any) -> SFTConfig:
        """SmolLM2-135M on 2 cores. One example a step: on a CPU a batch computes no faster than its
        rows, needs padding, and makes fewer steps of the same tokens (measured: at 190,000 tokens a
        batch of 8 reproduces 34% of held-out kernels exactly, 4 two thirds, 1 four fifths). Prompts
        are the short ones: of the generator's tokens v3 would have 30% more."""
        recipe: dict[str, Any] = {
            "base_model": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "num_examples": 440,
            "optimizer_examples": 80,
            "max_task_ops": 3,
            "epochs": 1.0,
            "batch_size": 1,
            "learning_rate": 1e-3,
            "lora_r": 64,
            "lora_alpha": 128,
            "lora_dropout": 0.0,
            "prompts": "v1",
            "save_every": 100,
            "held_out_examples": 8,
            "held_out_tasks": 0,
        }
        return cls.model_validate({**recipe, **cls.by_our_names(changes)})


class SFTResult(Record):
    """What a run left. Maker: `train_sft`. Consumers: RL, evaluation, the report."""

    model: str
    """Folder of the merged model; with `per_role` that of both adapters."""
    adapters: Mapping[str, str]
    """Folder of the adapter by role; the same weights under both names, unless `per_role`."""
    examples: Mapping[str, int]
    """Examples trained on, by role."""
    extra_examples: int = 0
    """How many of them are of the file `extra_examples`."""
    data: str = ""
    """Where the generator's examples are from, in words."""
    left_out: int
    """Examples longer than `max_length`."""
    steps: int
    trainable_parameters: int
    tokens: int
    """Tokens of prompts and answers that were trained on, over all epochs."""
    tokens_per_s: float
    """Of the last run, without loading and saving."""
    first_loss: float
    last_loss: float
    """Mean over the first and the last tenth of the steps; nats per answer token."""
    min_gradient_norm: float
    seconds: float
    """Wall time of training over all runs of the folder, without what `epochs` took."""
    epochs: tuple[SFTEpoch, ...] = ()
    """Before training and after each epoch."""
    quantization: str
    dtype: str
    gpu_memory_gib: float | None = None
    """Most that torch held on the GPU, evaluations included, of the last run; None on a CPU."""
