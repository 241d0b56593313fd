"""Supervised fine-tuning of generator and optimizer by TRL's SFTTrainer, with LoRA.

    examples -> prompts and answers as agents see them -> token ids -> SFTTrainer -> adapter, model

One run trains one adapter on the examples of both roles, since RL goes on with one policy; it is
saved under both roles' names, and merged as a whole model. Guaranteed: the loss is on answers alone
and on the very token ids that sampling would see; every trained weight has a gradient (bitsandbytes
can lose them silently on a CPU); the same command after a kill goes on from the last checkpoint,
and a finished folder is returned as it is. Nothing is truncated: an example longer than
`max_length` is left out, and counted.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import structlog
from pydantic import Field

from coding_framework.agents.policies import fast_dtype, prompt_ids
from coding_framework.agents.prompts import PROMPT_VERSION, messages_for_example, render_answer
from coding_framework.errors import InfrastructureError, TrainingError, UsageError
from coding_framework.monitoring.jsonl import JsonlSink
from coding_framework.monitoring.progress import Progress
from coding_framework.paths import cannot_write, write_json_atomic
from coding_framework.types import Record, Role, TrainingExample

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
    lora_r: int = Field(default=16, ge=1)
    lora_alpha: int = Field(default=32, ge=1)
    lora_dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    quantization: Literal["auto", "nf4", "none"] = "auto"
    """nf4: QLoRA by bitsandbytes; auto: nf4 on a GPU, none on a CPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    save_every: int = Field(default=50, ge=1)
    """Steps between checkpoints."""
    wandb: bool = False
    """Also report to the wandb project CUDA-SFT-Training."""
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
    """Wall time of training over all runs of the folder."""
    quantization: str
    dtype: str


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
    wanted = {
        Role.GENERATOR: config.num_examples,
        Role.OPTIMIZER: config.num_examples
        if config.optimizer_examples is None
        else config.optimizer_examples,
    }
    examples: list[TrainingExample] = []
    for role, count in wanted.items():
        found = list(make(role, count, config.seed, max_steps=config.max_task_ops)) if count else []
        if len(found) < count:
            log.warning("fewer_examples", role=role, wanted=count, found=len(found))
        examples += found
    if not examples:
        raise UsageError("there is no example to train on: ask for more, or for longer tasks")
    return examples


def train_sft(
    config: SFTConfig,
    examples: Sequence[TrainingExample],
    *,
    resolve: Callable[[str], Path],
) -> SFTResult:
    """Train on `examples`; goes on from the folder's last checkpoint, or returns its result.

    resolve: gives the base model's folder (`agents.models.resolve_model`). Raises UsageError where
    the folder holds another run, TrainingError where gradients are missing or not finite.
    """
    folder = Path(config.output_dir).resolve()
    finished = _claim(folder, config)
    if finished is not None:
        log.info("sft_already_finished", folder=str(folder))
        return finished
    base = resolve(config.base_model)
    trainer = _Run(config, folder, base)
    result = trainer.train(examples)
    state = {**_run_record(config), "base_folder": str(base), "result": result.model_dump()}
    write_json_atomic(folder / "config.json", state)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return result


# --- the folder -----------------------------------------------------------------------------------


def _run_record(config: SFTConfig) -> dict[str, Any]:
    packages = ("coding-framework", "torch", "transformers", "trl", "peft")
    return {
        "config": config.model_dump(mode="json"),
        "prompt_version": PROMPT_VERSION,
        "adapter": "one adapter, trained on both roles, saved under both names",
        "versions": {name: version(name) for name in packages},
    }


def _claim(folder: Path, config: SFTConfig) -> SFTResult | None:
    """Start or continue the run of this folder; its result where it is finished already."""
    path = folder / "config.json"
    if path.exists():
        try:
            stored = json.loads(path.read_text())
            there = SFTConfig.model_validate(stored["config"])
            result = SFTResult.model_validate(stored["result"]) if "result" in stored else None
        except (ValueError, KeyError) as e:
            raise UsageError(
                f"{path} is not one of ours: choose another --output-dir or remove it"
            ) from e
        changed = [
            name
            for name in SFTConfig.model_fields
            if name not in ("output_dir", "wandb") and getattr(there, name) != getattr(config, name)
        ]
        if changed:
            raise UsageError(
                f"{folder} holds a run with other settings ({', '.join(changed)}): choose another "
                "--output-dir, or remove it"
            )
        return result
    write_json_atomic(path, _run_record(config))
    return None


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint. transformers writes `trainer_state.json` last, so one without it
    was cut off by a kill; it is removed."""
    found = []
    for path in folder.glob("checkpoint-*"):
        try:
            step = int(json.loads((path / "trainer_state.json").read_text())["global_step"])
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path, ignore_errors=True)
            continue
        found.append((step, path))
    return max(found)[1] if found else None


def _replace_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """`target` becomes what `fill` writes, as a whole."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        made.chmod(0o755)
        try:
            fill(made)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as e:
        raise InfrastructureError(cannot_write(target, e)) from e


# --- training -------------------------------------------------------------------------------------


class _Run:
    """One training run in its folder."""

    def __init__(self, config: SFTConfig, folder: Path, base: Path) -> None:
        import torch

        self.config, self.folder, self.base = config, folder, base
        cuda = torch.cuda.is_available()
        if config.device == "cuda" and not cuda:
            raise UsageError("device cuda was asked for and there is no GPU: use --device cpu")
        self.device = "cuda" if config.device != "cpu" and cuda else "cpu"
        self.dtype = fast_dtype(self.device)
        quantize = config.quantization
        self.nf4 = quantize == "nf4" or (quantize == "auto" and self.device == "cuda")

    def train(self, examples: Sequence[TrainingExample]) -> SFTResult:
        import torch
        from transformers import AutoTokenizer, set_seed

        set_seed(self.config.seed)
        tokenizer = AutoTokenizer.from_pretrained(self.base)
        tokenized = [tokenize_example(tokenizer, e) for e in examples]
        kept = [t for t in tokenized if len(t.input_ids) <= self.config.max_length]
        if not kept:
            raise UsageError(
                f"no example has at most {self.config.max_length} tokens: raise --max-length"
            )
        model = self._model()
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
        log.info(
            "sft_started",
            examples=len(kept),
            left_out=len(tokenized) - len(kept),
            trainable_parameters=trainable,
            device=self.device,
            dtype=str(self.dtype),
            nf4=self.nf4,
        )
        watch, seconds = self._fit(model, tokenizer, kept)
        self._save(model, tokenizer)
        if self.device == "cuda":
            torch.cuda.empty_cache()
        losses = watch.losses
        tenth = max(1, len(losses) // 10)
        return SFTResult(
            model=str(self.folder / "model"),
            adapters={role.value: str(self.folder / role.value) for role in ROLES},
            examples={r.value: sum(t.role is r for t in kept) for r in ROLES},
            left_out=len(tokenized) - len(kept),
            steps=watch.step,
            trainable_parameters=trainable,
            tokens=watch.tokens,
            tokens_per_s=round(watch.rate, 1),
            first_loss=sum(losses[:tenth]) / tenth,
            last_loss=sum(losses[-tenth:]) / tenth,
            min_gradient_norm=min(watch.gradient_norms),
            seconds=round(seconds, 1),
            quantization="nf4" if self.nf4 else "none",
            dtype=str(self.dtype).removeprefix("torch."),
        )

    def _model(self) -> Any:
        """The base model with fresh LoRA weights (float32) on it."""
        import torch
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from peft.tuners.lora import LoraLayer
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig

        options: dict[str, Any] = {"dtype": self.dtype, "attn_implementation": "sdpa"}
        if self.nf4:
            options["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=self.dtype,
            )
            options["device_map"] = {"": self.device}
        model = AutoModelForCausalLM.from_pretrained(self.base, **options)
        if self.nf4:
            model = prepare_model_for_kbit_training(
                model, use_gradient_checkpointing=self.device == "cuda"
            )
            if self.device == "cpu":
                keep_gradients_on_cpu(model)
        else:
            model = model.to(self.device)
        lora = LoraConfig(
            r=self.config.lora_r,
            lora_alpha=self.config.lora_alpha,
            lora_dropout=self.config.lora_dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        made = get_peft_model(model, lora)
        if self.dtype is torch.bfloat16:
            for module in made.modules():
                if isinstance(module, LoraLayer):  # autocast does it, once
                    module.cast_input_dtype_enabled = False
        return made

    def _fit(
        self, model: Any, tokenizer: Any, examples: Sequence[TokenizedExample]
    ) -> tuple[Watch, float]:
        from datasets import Dataset

        rows = [{"input_ids": list(e.input_ids), "labels": e.labels} for e in examples]
        config, checkpoints = self.config, self.folder / "checkpoints"
        per_step = config.batch_size * config.gradient_accumulation_steps
        steps = math.ceil(len(rows) / config.batch_size) / config.gradient_accumulation_steps
        total = config.max_steps or math.ceil(math.ceil(steps) * config.epochs)
        start = last_checkpoint(checkpoints)
        trainer = _make_trainer(self._arguments(total), model, tokenizer, Dataset.from_list(rows))
        mean_tokens = sum(len(e.input_ids) for e in examples) / len(examples)
        with (
            JsonlSink(self.folder / "metrics.jsonl") as sink,
            Progress("sft", total, "steps") as progress,
        ):
            watch = Watch(trainer.model, sink, progress, mean_tokens * per_step)
            trainer.add_callback(watch.callback())
            if start is not None:
                log.info("sft_resumed", checkpoint=start.name)
            before = watch.restore(self.folder / "metrics.jsonl", start)
            began = time.monotonic()
            trainer.train(resume_from_checkpoint=str(start) if start is not None else None)
        return watch, before + time.monotonic() - began

    def _arguments(self, total: int) -> Any:
        from trl import SFTConfig as TRLConfig

        config, bf16 = self.config, str(self.dtype) == "torch.bfloat16"
        if config.wandb:
            os.environ.setdefault("WANDB_PROJECT", "CUDA-SFT-Training")
        return TRLConfig(
            output_dir=str(self.folder / "checkpoints"),
            max_steps=total,
            per_device_train_batch_size=config.batch_size,
            gradient_accumulation_steps=config.gradient_accumulation_steps,
            learning_rate=config.learning_rate,
            warmup_steps=max(1, round(config.warmup_ratio * total)),
            lr_scheduler_type="cosine",
            adam_beta2=0.95,
            max_grad_norm=1.0,
            bf16=bf16,
            use_cpu=self.device == "cpu",
            gradient_checkpointing=self.device == "cuda",
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
            train_sampling_strategy="random",
            logging_steps=1,
            logging_strategy="steps",
            save_strategy="steps",
            save_steps=min(config.save_every, total),
            save_total_limit=2,
            report_to=["wandb"] if config.wandb else [],
            disable_tqdm=True,
            dataloader_pin_memory=self.device == "cuda",
            seed=config.seed,
            data_seed=config.seed,
        )

    def _save(self, model: Any, tokenizer: Any) -> None:
        """The adapter under both roles' names, and the model with it merged."""
        import torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        for role in ROLES:

            def adapter(path: Path) -> None:
                model.save_pretrained(path)
                tokenizer.save_pretrained(path)

            _replace_folder(self.folder / role.value, adapter)
        # from a fresh base: NF4 weights must not be merged into, and float32 sums round once
        base = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32)
        merged = PeftModel.from_pretrained(base, str(self.folder / ROLES[0].value))
        whole = merged.merge_and_unload().to(torch.bfloat16)

        def full(path: Path) -> None:
            whole.save_pretrained(path)
            tokenizer.save_pretrained(path)

        _replace_folder(self.folder / "model", full)


def keep_gradients_on_cpu(model: Any) -> None:
    """bitsandbytes packs NF4 weights for AVX512 on the first forward in eval mode, after which no
    gradient flows through them, with only a warning: switch that off."""
    import bitsandbytes as bnb

    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):
            module.support_avx512bf16_for_cpu = False


def _make_trainer(arguments: Any, model: Any, tokenizer: Any, dataset: Any) -> Any:
    """TRL's trainer; on a CPU with a loss that projects onto the vocabulary once, and only where a
    label is. (TRL's chunks save memory by projecting twice, which a CPU notices and 400 tokens do
    not need.)"""
    from torch.nn import functional
    from transformers import PrinterCallback
    from trl import SFTTrainer

    class AnswerLossTrainer(SFTTrainer):  # type: ignore[misc]
        def compute_loss(
            self,
            model: Any,
            inputs: Any,
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            if inputs["input_ids"].device.type != "cpu" or return_outputs:
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            inner = self.accelerator.unwrap_model(model).get_base_model()
            mask = inputs["attention_mask"] if len(inputs["input_ids"]) > 1 else None
            labels = inputs["labels"][:, 1:]
            with self.accelerator.autocast():
                hidden = inner.base_model(
                    input_ids=inputs["input_ids"], attention_mask=mask, use_cache=False
                ).last_hidden_state
                logits = inner.get_output_embeddings()(hidden[:, :-1][labels != -100])
            total = functional.cross_entropy(
                logits.float(), labels[labels != -100], reduction="sum"
            )
            return total / (num_items_in_batch or (labels != -100).sum())

    trainer = AnswerLossTrainer(
        model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer
    )
    trainer.remove_callback(PrinterCallback)  # the progress line and metrics.jsonl say it
    return trainer


class Watch:
    """Follows a run: gradients, losses, rate. One line a step in `metrics.jsonl`."""

    def __init__(
        self, model: Any, sink: JsonlSink, progress: Progress, tokens_per_step: float
    ) -> None:
        self._trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self._sink, self._progress = sink, progress
        self._tokens_per_step = tokens_per_step
        self.step = 0
        self.losses: list[float] = []
        self.gradient_norms: list[float] = []
        self._began: float | None = None
        self._ended: float | None = None
        self._first_step = 0
        self._seconds_before = 0.0

    @property
    def tokens(self) -> int:
        return round(self.step * self._tokens_per_step)

    @property
    def rate(self) -> float:
        """Tokens per second of this run."""
        if self._began is None or self.step == self._first_step:
            return 0.0
        done = (self.step - self._first_step) * self._tokens_per_step
        return done / max((self._ended or time.monotonic()) - self._began, 1e-9)

    def restore(self, metrics: Path, checkpoint: Path | None) -> float:
        """Take over the records up to the checkpoint; gives the seconds that they took."""
        if checkpoint is None:
            return 0.0
        first = int(checkpoint.name.rsplit("-", 1)[1])
        known: dict[int, dict[str, Any]] = {}
        for line in metrics.read_text().splitlines():
            entry = json.loads(line)
            if entry["step"] <= first:
                known[entry["step"]] = entry
        entries = [known[step] for step in sorted(known)]
        self.losses = [e["loss"] for e in entries]
        self.gradient_norms = [e["gradient_norm"] for e in entries]
        self.step = self._first_step = first
        self._progress.update(first)
        self._seconds_before = entries[-1]["seconds"] if entries else 0.0
        return self._seconds_before

    def check_gradients(self) -> None:
        """Every trained weight has a finite gradient, and not all are zero."""
        without = [name for name, p in self._trained if p.grad is None]
        if without:
            raise TrainingError(
                f"SFT: {len(without)} of {len(self._trained)} trained weights have no gradient "
                f"(first: {without[0]}): nothing would be learnt there; try --quantization none"
            )

    def record(self, step: int, loss: float, gradient_norm: float, learning_rate: float) -> None:
        """One step is done."""
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            raise TrainingError(
                f"SFT: loss {loss} and gradient norm {gradient_norm} at step {step}: lower "
                "--learning-rate"
            )
        if gradient_norm == 0.0:
            raise TrainingError(f"SFT: all gradients are zero at step {step}: nothing is learnt")
        self.step = step
        self.losses.append(loss)
        self.gradient_norms.append(gradient_norm)
        self._sink.write(
            {
                "step": step,
                "loss": loss,
                "gradient_norm": gradient_norm,
                "learning_rate": learning_rate,
                "seconds": round(
                    self._seconds_before + time.monotonic() - (self._began or time.monotonic()), 2
                ),
            }
        )
        recent = self.losses[-20:]
        note = f"loss {sum(recent) / len(recent):.3f}, {self.rate:.0f} tokens/s"
        self._progress.update(step, note)

    def callback(self) -> Any:
        """As a callback of transformers' Trainer."""
        from transformers import TrainerCallback

        watch = self

        class WatchCallback(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, *_: Any, **__: Any) -> None:
                watch._began = time.monotonic()

            def on_train_end(self, *_: Any, **__: Any) -> None:
                watch._ended = time.monotonic()

            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                watch.check_gradients()

            def on_log(self, args: Any, state: Any, control: Any, **extra: Any) -> None:
                logs = extra.get("logs") or {}
                if "loss" in logs:
                    norm = float(logs["grad_norm"])
                    watch.record(state.global_step, logs["loss"], norm, logs["learning_rate"])

        return WatchCallback()
