"""What SFT is told and what it leaves: configuration, result, and examples as token ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import structlog
from pydantic import Field

from coding_framework.agents.policies import prompt_ids
from coding_framework.agents.prompts import messages_for_example, render_answer
from coding_framework.errors import UsageError
from coding_framework.store.records import SFTEpoch
from coding_framework.types import Record, Role, Split, TrainingExample

log = structlog.get_logger(__name__)

ROLES = (Role.GENERATOR, Role.OPTIMIZER)


class SFTConfig(Record):
    """How SFT runs. Defaults are the documents' recipe for a GPU; `cpu()` gives what a 135M model
    learns from in minutes on 2 cores."""

    base_model: str = "Qwen/Qwen2.5-Coder-1.5B-Instruct"
    """A local Hugging Face folder, a hub's name, or a packaged model (`agents.models`)."""
    output_dir: str = "sft_checkpoints"
    num_examples: int = Field(default=500, ge=1)
    """Examples of the generator."""
    optimizer_examples: int | None = Field(default=None, ge=0)
    """Examples of the optimizer; None: as many as of the generator."""
    generator_target: Literal["naive", "best"] = "naive"
    """Which kernel of a task the generator learns, and is asked for in the held-out loss: the naive
    one, or the fastest at real sizes, a longer answer."""
    extra_examples: str | None = None
    """File of examples that are learnt beside those drawn, all of them, whatever `max_task_ops`
    says: repairs of a model's own mistakes (`cuda-rl data mistakes`), or another built set."""
    max_task_ops: int | None = Field(default=None, ge=1)
    """Longest composition among the tasks; None: any."""
    epochs: float = Field(default=3.0, gt=0.0)
    max_steps: int | None = Field(default=None, ge=1)
    """Optimizer steps at most; None: as many as the epochs have."""
    batch_size: int = Field(default=4, ge=1)
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    learning_rate: float = Field(default=2e-4, gt=0.0)
    warmup_ratio: float = Field(default=0.05, ge=0.0, lt=1.0)
    max_length: int = Field(default=2048, ge=64)
    """Tokens of prompt and answer; longer examples are left out and counted."""
    packing: bool = True
    """The examples of a batch in one row, masked from each other, and not each in one of its own,
    padded to the longest. The batches, and so the gradients, are the same."""
    lora_r: int = Field(default=16, ge=1)
    lora_alpha: int = Field(default=32, ge=1)
    lora_dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    quantization: Literal["auto", "nf4", "none"] = "auto"
    """nf4: QLoRA by bitsandbytes; auto: nf4 on a GPU, none on a CPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    save_every: int = Field(default=50, ge=1)
    """Steps between checkpoints; there is one at the end of each epoch, too."""
    held_out_examples: int = Field(default=64, ge=0)
    """Examples of held-out tasks, about: their loss is taken before training and after each epoch;
    0: none. A forward pass each."""
    held_out_tasks: int = Field(default=32, ge=0)
    """Held-out tasks whose answers are judged after each epoch; 0: none."""
    wandb: bool | None = None
    """Also report to the wandb project CUDA-SFT-Training; None: where WANDB_API_KEY is set."""
    seed: int = 0

    @classmethod
    def cpu(cls, **changes: Any) -> SFTConfig:
        """SmolLM2-135M on 2 cores. One example a step: on a CPU a batch computes no faster than its
        rows, needs padding, and makes fewer steps of the same tokens (measured: at 190,000 tokens a
        batch of 8 reproduces 34% of held-out kernels exactly, 4 two thirds, 1 four fifths)."""
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
            "save_every": 100,
            "held_out_examples": 8,
            "held_out_tasks": 0,
        }
        return cls.model_validate({**recipe, **changes})


class SFTResult(Record):
    """What a run left. Maker: `train_sft`. Consumers: RL, evaluation, the report."""

    model: str
    """Folder of the merged model."""
    adapters: Mapping[str, str]
    """Folder of the adapter by role; the same weights under both names."""
    examples: Mapping[str, int]
    """Examples trained on, by role."""
    extra_examples: int = 0
    """How many of them are of the file `extra_examples`."""
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


class TokenizedExample(Record):
    """An example as the trainer takes it."""

    role: Role
    input_ids: tuple[int, ...]
    prompt_length: int

    @property
    def labels(self) -> list[int]:
        """-100 on the prompt: only the answer is learnt."""
        return [-100] * self.prompt_length + list(self.input_ids[self.prompt_length :])


def tokenize_example(tokenizer: Any, example: TrainingExample) -> TokenizedExample:
    """Prompt and answer as sampling sees them; the answer ends with the token that stops it."""
    prompt = prompt_ids(tokenizer, messages_for_example(example))
    answer = tokenizer(render_answer(example), add_special_tokens=False)["input_ids"]
    ids = (*prompt, *answer, tokenizer.eos_token_id)
    return TokenizedExample(role=example.role, input_ids=ids, prompt_length=len(prompt))


def load_examples(
    config: SFTConfig, make: Callable[..., Sequence[TrainingExample]]
) -> list[TrainingExample]:
    """The examples of both roles from `make` (data_pipeline.training_examples).

    Raises UsageError where fewer are there than were asked for.
    """
    examples: list[TrainingExample] = []
    for role, count in _by_role(config).items():
        found = list(make(role, count, config.seed, max_steps=config.max_task_ops)) if count else []
        if len(found) < count:
            log.warning("fewer_examples", role=role, wanted=count, found=len(found))
        examples += found
    if not examples:
        raise UsageError("there is no example to train on: ask for more, or for longer tasks")
    return examples


def load_held_out(
    config: SFTConfig, make: Callable[..., Sequence[TrainingExample]]
) -> list[TrainingExample]:
    """Examples of held-out tasks from `make` (data_pipeline.held_out_examples), the same for one
    seed; the roles in their proportion in training, so that the losses compare."""
    by_role = _by_role(config)
    share = config.held_out_examples / sum(by_role.values())
    examples: list[TrainingExample] = []
    for role, count in by_role.items():
        wanted = math.ceil(share * count)
        found = make(role, wanted, config.seed, max_steps=config.max_task_ops) if wanted else ()
        if len(found) < wanted:
            log.warning("fewer_held_out_examples", role=role, wanted=wanted, found=len(found))
        examples += found
    return examples


def check_apart(examples: Sequence[TrainingExample], held_out: Sequence[TrainingExample]) -> None:
    """Raises UsageError where a training example is of a held-out task, or a held-out one is not.
    The split itself is by function: see docs/data.md."""
    leaks = [e.id for e in examples if e.task.split is Split.HELD_OUT]
    wrong = [e.id for e in held_out if e.task.split is not Split.HELD_OUT]
    if leaks or wrong:
        raise UsageError(
            f"{len(leaks)} training examples are of held-out tasks and {len(wrong)} held-out ones "
            f"are not (first: {(leaks + wrong)[0]}): draw them with training_examples and "
            "held_out_examples"
        )


def _by_role(config: SFTConfig) -> dict[Role, int]:
    others = config.optimizer_examples
    return {
        Role.GENERATOR: config.num_examples,
        Role.OPTIMIZER: config.num_examples if others is None else others,
    }
