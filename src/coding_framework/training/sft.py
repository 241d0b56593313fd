"""Supervised fine-tuning of generator and optimizer by TRL's SFTTrainer, with LoRA.

    examples -> prompts and answers as agents see them -> token ids -> SFTTrainer -> adapter, model

One run trains one adapter on the examples of both roles, since RL goes on with one policy. The
adapter is saved under both roles' names, and merged into a whole model. Guaranteed: the loss is on
answers alone, on the token ids that sampling sees. Every trained weight has a gradient
(bitsandbytes can lose them silently on a CPU). The same command resumes a killed run from its last
checkpoint and returns the result of a finished one. Nothing is truncated: an example longer than
`max_length` is left out, and counted. No example of a held-out task is learnt from; `sft_epochs`
measures the policy on such tasks.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from coding_framework.agents.policies import fast_dtype, load_model
from coding_framework.agents.prompts import ANSWER_TOKENS
from coding_framework.errors import OutOfTimeError, UsageError
from coding_framework.monitoring.alerts import AlertBook
from coding_framework.monitoring.progress import Progress
from coding_framework.monitoring.run_watch import RunWatch
from coding_framework.monitoring.wandb_sink import SFT_PROJECT, WandbSink, wandb_wanted
from coding_framework.paths import write_json_atomic
from coding_framework.store.checkpoints import last_sft_checkpoint
from coding_framework.store.events import log
from coding_framework.store.folder import SFTFolder, differences, replaced, told
from coding_framework.store.lines import JsonlSink
from coding_framework.store.model_card import ModelCard, TrainedOn, card_of, write_card
from coding_framework.store.training_log import keep_sft_records
from coding_framework.training.recipes import require_gpus
from coding_framework.training.sft_batches import EpochOrder
from coding_framework.training.sft_config import SFTConfig, SFTResult
from coding_framework.training.sft_epochs import EpochWatch
from coding_framework.training.sft_examples import (
    ROLES,
    TokenizedExample,
    check_apart,
    load_examples,
    load_held_out,
    tokenize_examples,
)
from coding_framework.training.sft_loss import answer_loss, held_out_loss
from coding_framework.training.sft_ranks import ALONE, Rank, followed, steps_per_epoch
from coding_framework.training.sft_watch import Watch
from coding_framework.types import EvaluateFn, PromptVersion, Role, TrainingExample

__all__ = ["SFTConfig", "SFTResult", "load_examples", "load_held_out", "train_sft"]


def train_sft(
    config: SFTConfig,
    examples: Sequence[TrainingExample],
    *,
    resolve: Callable[[str], Path],
    extra: Sequence[TrainingExample] = (),
    held_out: Sequence[TrainingExample] = (),
    evaluate: EvaluateFn | None = None,
) -> SFTResult:
    """Train on `examples`; goes on from the folder's last checkpoint, or returns its result.

    resolve: gives the base model's folder (`agents.models.resolve_model`). extra: examples of a
    file, learnt like the others. held_out: examples whose loss is found out after each epoch, as is
    what `evaluate` says of the policy. Not to be called where an event loop runs. Raises UsageError
    where the folder holds another run or the examples are not apart, TrainingError where gradients
    are missing or not finite.
    """
    check_apart((*examples, *extra), held_out)
    if iscoroutinefunction(evaluate):
        raise UsageError("evaluate() is a coroutine: give a function that returns the score")
    folder = Path(config.output_dir).resolve()
    record = _run_record(config, extra)
    finished = _claim(folder, config, record)
    if finished is not None:
        log.info("sft_already_finished", folder=str(folder))
        return finished
    require_gpus(config.device, config.num_gpus)  # here alone: each other rank sees one GPU
    base = resolve(config.base_model)
    with RunWatch(folder, "sft"):
        result = _Run(config, folder, base, evaluate).train(examples, extra, held_out)
    state = {**record, "base_folder": str(base), "result": result.model_dump()}
    write_json_atomic(SFTFolder(folder).config, state)
    shutil.rmtree(SFTFolder(folder).checkpoints, ignore_errors=True)
    return result


def claim_roles(config: SFTConfig) -> None:
    """Start or continue a run with an adapter a role. Raises UsageError where the folder holds
    another run."""
    _claim(Path(config.output_dir).resolve(), config, _run_record(config, ()))


def join_roles(config: SFTConfig, results: Mapping[Role, SFTResult]) -> SFTResult:
    """The adapters of the roles' runs side by side, and what they cost together."""
    folder = SFTFolder(Path(config.output_dir).resolve())
    for role, result in results.items():
        with replaced(folder.adapter(role)) as fresh:
            shutil.copytree(result.adapters[role.value], fresh, dirs_exist_ok=True)
    of_generator, *_ = results.values()
    joined = of_generator.model_copy(
        update={
            "model": str(folder.root),
            "adapters": {role.value: str(folder.adapter(role)) for role in results},
            "examples": {role.value: r.examples[role.value] for role, r in results.items()},
            "left_out": sum(r.left_out for r in results.values()),
            "steps": sum(r.steps for r in results.values()),
            "tokens": sum(r.tokens for r in results.values()),
            "seconds": round(sum(r.seconds for r in results.values()), 1),
            "min_gradient_norm": min(r.min_gradient_norm for r in results.values()),
        }
    )
    record = {**_run_record(config, ()), "result": joined.model_dump()}
    write_json_atomic(folder.config, record)
    return joined


# --- the folder -----------------------------------------------------------------------------------


def _run_record(config: SFTConfig, extra: Sequence[TrainingExample]) -> dict[str, Any]:
    packages = ("coding-framework", "torch", "transformers", "trl", "peft")
    return {
        "config": config.model_dump(mode="json"),
        "extra_examples_sha256": _digest(extra),
        "prompt_version": config.prompts,
        "adapter": "an adapter a role"
        if config.per_role
        else "one adapter, trained on both roles, saved under both names",
        "versions": {name: version(name) for name in packages},
    }


def _digest(examples: Sequence[TrainingExample | TokenizedExample]) -> str:
    """Address of what is learnt beside what the settings draw; "" where that is nothing."""
    if not examples:
        return ""
    lines = "\n".join(example.model_dump_json() for example in examples)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()


def _claim(folder: Path, config: SFTConfig, record: Mapping[str, Any]) -> SFTResult | None:
    """Start or continue the run of this folder; its result where it is finished already."""
    path = SFTFolder(folder).config
    if path.exists():
        try:
            stored = json.loads(path.read_text())
            known = stored["config"].keys() & SFTConfig.model_fields.keys()  # others are gone
            there = SFTConfig.model_validate({name: stored["config"][name] for name in known})
            result = SFTResult.model_validate(stored["result"]) if "result" in stored else None
        except (ValueError, KeyError, AttributeError) as e:
            raise UsageError(
                f"{path} is not one of ours: choose another --output-dir or remove it"
            ) from e
        # Settings that an older version did not name have their defaults there.
        names = {*known, "generator_target", "prompts", "by_length", "num_gpus"}
        compared = names - {"output_dir", "wandb", "extra_examples", "minutes"}
        changed = differences(
            *(c.model_dump(mode="json", include=compared) for c in (there, config))
        )
        if stored.get("extra_examples_sha256", "") != record["extra_examples_sha256"]:
            changed.append("extra_examples")  # by content: the file may have been moved
        if changed:
            raise UsageError(
                f"{folder} holds a run with other settings ({told(changed)}): choose another "
                "--output-dir, or remove it"
            )
        return result
    write_json_atomic(path, record)
    return None


# --- training -------------------------------------------------------------------------------------


class _Run:
    """One training run in its folder."""

    def __init__(
        self, config: SFTConfig, folder: Path, base: Path, evaluate: EvaluateFn | None
    ) -> None:
        import torch

        self.config, self.base, self.evaluate = config, base, evaluate
        self.folder = SFTFolder(folder)
        self.began = time.monotonic()
        cuda = config.device != "cpu" and torch.cuda.is_available()
        self.device = "cuda" if cuda else "cpu"
        said = config.dtype
        self.dtype = getattr(torch, fast_dtype(self.device) if said == "auto" else said)
        quantize = config.quantization
        self.nf4 = quantize == "nf4" or (quantize == "auto" and self.device == "cuda")
        asked = config.gradient_checkpointing
        self.recomputes = self.device == "cuda" if asked is None else asked

    def train(
        self,
        examples: Sequence[TrainingExample],
        extra: Sequence[TrainingExample],
        held_out: Sequence[TrainingExample],
    ) -> SFTResult:
        from transformers import AutoTokenizer, set_seed

        set_seed(self.config.seed)
        tokenizer = AutoTokenizer.from_pretrained(self.base)
        beside = self._short(tokenizer, extra)
        kept = [*self._short(tokenizer, examples), *beside]
        left_out = len(examples) + len(extra) - len(kept)
        if not kept:
            raise UsageError(
                f"no example has at most {self.config.max_length} tokens: raise --max-length"
            )
        unseen = self._short(tokenizer, held_out)
        model = self.model()
        trainable, parameters = model.get_nb_trainable_parameters()
        print(
            f"SFT: {trainable:,} of {parameters:,} parameters are trained "
            f"({trainable / parameters:.2%}), on {len(kept)} examples; {len(unseen)} held out",
            file=sys.stderr,
            flush=True,
        )
        log.info(
            "sft_started",
            examples=len(kept),
            extra=len(beside),
            left_out=left_out,
            held_out=len(unseen),
            trainable_parameters=trainable,
            parameters=parameters,
            device=self.device,
            dtype=str(self.dtype),
            nf4=self.nf4,
        )
        watch = self._fit(model, tokenizer, kept, unseen)
        self._save(model, tokenizer, kept)
        return self._result(watch, kept, len(beside), left_out, trainable)

    def _result(
        self,
        watch: Watch,
        kept: Sequence[TokenizedExample],
        extra: int,
        left_out: int,
        trainable: int,
    ) -> SFTResult:
        import torch

        held = None
        if self.device == "cuda":
            held = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            torch.cuda.empty_cache()
        losses = watch.losses
        tenth = max(1, len(losses) // 10)
        return SFTResult(
            model=str(self.folder.model),
            adapters={role.value: str(self.folder.adapter(role)) for role in ROLES},
            examples={r.value: sum(t.role is r for t in kept) for r in ROLES},
            extra_examples=extra,
            left_out=left_out,
            steps=watch.step,
            trainable_parameters=trainable,
            tokens=watch.tokens,
            tokens_per_s=round(watch.rate, 1),
            first_loss=sum(losses[:tenth]) / tenth,
            last_loss=sum(losses[-tenth:]) / tenth,
            min_gradient_norm=min(watch.gradient_norms),
            seconds=round(watch.seconds, 1),
            epochs=tuple(watch.epochs),
            quantization="nf4" if self.nf4 else "none",
            dtype=str(self.dtype).removeprefix("torch."),
            gpu_memory_gib=held,
        )

    def _short(self, tokenizer: Any, examples: Sequence[TrainingExample]) -> list[TokenizedExample]:
        """Those that are not too long, as token ids."""
        cores = len(os.sched_getaffinity(0))
        found = tokenize_examples(tokenizer, examples, self.config.prompts, cores)
        return [t for t in found if len(t.input_ids) <= self.config.max_length]

    def model(self) -> Any:
        """The base model with LoRA weights (float32) on it: those that training starts from."""
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
                model, use_gradient_checkpointing=self.recomputes
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
            exclude_modules=_below(model.config.num_hidden_layers, self.config.lora_layers),
            task_type="CAUSAL_LM",
        )
        made = get_peft_model(model, lora)
        if self.config.start_adapter is not None:
            _begin_with(made, lora, Path(self.config.start_adapter))
        if self.dtype is torch.bfloat16:
            for module in made.modules():
                if isinstance(module, LoraLayer):  # autocast does it, once
                    module.cast_input_dtype_enabled = False
        return made

    def _fit(
        self,
        model: Any,
        tokenizer: Any,
        examples: Sequence[TokenizedExample],
        held_out: Sequence[TokenizedExample],
    ) -> Watch:
        config, checkpoints = self.config, self.folder.checkpoints
        total = self._steps(len(examples))
        start, done = last_sft_checkpoint(checkpoints)
        records = keep_sft_records(self.folder.metrics, done)
        mean_tokens = sum(len(e.input_ids) for e in examples) / len(examples)
        per_step = config.batch_size * config.gradient_accumulation_steps * config.num_gpus
        resumed = str(start) if start is not None else None
        told = (config, self.folder.root, self.base, examples, resumed)
        with (
            followed(self.device, config.num_gpus, _follow, *told) as rank,
            JsonlSink(self.folder.metrics) as sink,
            WandbSink(
                SFT_PROJECT,
                self.folder.root,
                config.model_dump(mode="json"),
                wanted=wandb_wanted(config.wandb),
            ) as wandb,
            Progress("sft", total, "steps", done=done, training=True) as progress,
        ):
            trainer = self.trainer(model, tokenizer, examples, rank)
            alerts = AlertBook(self.folder.root, wandb.alert)
            watch = Watch(trainer.model, sink, wandb, progress, mean_tokens * per_step, alerts)
            watch.restore(records)
            autocast = trainer.accelerator.autocast
            epochs = EpochWatch(
                watch,
                checkpoints,
                base=self.base,
                loss=partial(held_out_loss, model, held_out, autocast) if held_out else None,
                evaluate=self.evaluate,
            )
            trainer.add_callback(watch.callback())
            trainer.add_callback(epochs.callback())
            if config.minutes is not None:
                trainer.add_callback(stop_after(self.began + 60 * config.minutes))
            if start is not None:
                log.info("sft_resumed", checkpoint=start.name)
            fit(trainer, rank, self.device, resumed)
        if watch.step < total:
            raise OutOfTimeError(
                f"SFT stopped at its limit of {config.minutes:g} minutes, after step {watch.step} "
                f"of {total}: the same command goes on"
            )
        return watch

    def _steps(self, examples: int) -> int:
        """Optimizer steps of the whole run."""
        config = self.config
        a_pass = steps_per_epoch(
            examples, config.batch_size, config.gradient_accumulation_steps, config.num_gpus
        )
        total = math.ceil(a_pass * config.epochs)
        return min(total, config.max_steps or total)

    def trainer(
        self, model: Any, tokenizer: Any, examples: Sequence[TokenizedExample], rank: Rank
    ) -> Any:
        """TRL's trainer of a rank's share of the examples."""
        from datasets import Dataset

        config = self.config
        arguments = self._arguments(self._steps(len(examples)))
        if rank.number:
            arguments.save_strategy = "no"
        return make_trainer(
            arguments,
            model,
            tokenizer,
            Dataset.from_list(
                [{"input_ids": list(e.input_ids), "labels": e.labels} for e in examples]
            ),
            # one example needs no mask of its own, which would cost attention its fast path
            packing=config.packing and not config.by_length and config.batch_size > 1,
            by_length=[len(e.input_ids) for e in examples] if config.by_length else None,
            rank=rank,
        )

    def _arguments(self, total: int) -> Any:
        from trl import SFTConfig as TRLConfig

        config, bf16 = self.config, str(self.dtype) == "torch.bfloat16"
        arguments = TRLConfig(
            output_dir=str(self.folder.checkpoints),
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
            gradient_checkpointing=self.recomputes,
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
            train_sampling_strategy="random",
            logging_steps=1,
            logging_strategy="steps",
            save_strategy="steps",
            save_steps=min(config.save_every, total),
            save_total_limit=2,
            report_to=[],  # the Watch reports
            disable_tqdm=True,
            dataloader_pin_memory=self.device == "cuda",
            seed=config.seed,
            data_seed=config.seed,
        )
        if arguments.n_gpu > 1:  # the Trainer would multiply the batch by the GPUs it sees
            arguments._n_gpu = 1
        return arguments

    def _save(self, model: Any, tokenizer: Any, learnt: Sequence[TokenizedExample]) -> None:
        """Save the adapter under both roles' names, and the whole model with the adapter merged.

        The whole model is float32. A base that came in bfloat16 swallows small updates when their
        sum is rounded to bfloat16 again: after 20 steps of SmolLM2-135M 23% of the trained weights
        were the old ones, and what was rounded away had 21% of the update's norm. Whoever computes
        in bfloat16 rounds while loading.
        """
        for role in ROLES:
            with replaced(self.folder.adapter(role)) as fresh:
                model.save_pretrained(fresh)
                tokenizer.save_pretrained(fresh)
                card = write_card(fresh, self._card(learnt))
        # From a fresh base: NF4 weights must not be merged into.
        adapted = self.folder.adapter(ROLES[0])
        whole, _ = load_model(self.base, adapter=adapted, dtype="float32", device="cpu")
        with replaced(self.folder.model) as fresh:
            whole.save_pretrained(fresh)
            tokenizer.save_pretrained(fresh)
            write_card(fresh, card.merged())

    def _card(self, learnt: Sequence[TokenizedExample]) -> ModelCard:
        start = self.config.start_adapter
        parent = card_of(Path(start) if start is not None else self.base)
        longest = max((len(e.input_ids) - e.prompt_length for e in learnt), default=0)
        before = (parent.answer_tokens or 0) if parent is not None else 0
        return ModelCard(
            stage="sft",
            base_model=parent.base_model if parent is not None else self.config.base_model,
            prompts=self.config.prompts,
            answer_tokens=answers_learnt(max(longest, before), self.config.prompts),
            trained_on=TrainedOn(
                digest=_digest(learnt),
                counts={role.value: sum(e.role is role for e in learnt) for role in ROLES},
            ),
            seed=self.config.seed,
            parent=parent.digest if parent is not None else None,
        )


def answers_learnt(longest: int, prompts: PromptVersion) -> int | None:
    """What a card says of the answers' length: a multiple of 1,024 that holds the longest one; None
    where the prompts' usual limit does."""
    return -(-longest // 1024) * 1024 if longest > ANSWER_TOKENS[prompts] else None


def _begin_with(model: Any, lora: Any, start: Path) -> None:
    """Put an adapter's weights in place of the fresh ones. Raises UsageError where it is of other
    layers, rank or scale, or not there."""
    from peft import PeftConfig, load_peft_weights, set_peft_model_state_dict

    try:
        known = PeftConfig.from_pretrained(str(start))
        found = set_peft_model_state_dict(model, load_peft_weights(str(start), device="cpu"))
    except (OSError, ValueError) as e:
        raise UsageError(f"--start-adapter: there is no adapter in {start}: {e}") from e
    except RuntimeError as e:
        raise UsageError(f"--start-adapter {start} does not fit the base model: {e}") from e
    missing = [name for name in found.missing_keys if "lora_" in name]
    scales = (known.lora_alpha / known.r, lora.lora_alpha / lora.r)
    if missing or found.unexpected_keys or scales[0] != scales[1]:
        raise UsageError(
            f"--start-adapter {start} is of rank {known.r}, scale {known.lora_alpha} and "
            f"{len(missing)} layers fewer, {len(found.unexpected_keys)} more than asked for: give "
            "--lora-r, --lora-alpha and --lora-layers as it was trained"
        )


def fit(trainer: Any, rank: Rank, device: str, resumed: str | None) -> None:
    """Train, from a checkpoint where one is given, together with the other ranks."""
    weights = [w for w in trainer.model.parameters() if w.requires_grad]
    with rank.joined(device):
        rank.begin_equal(weights)
        if rank.of > 1:
            trainer.add_callback(rank.stop_together())
        trainer.train(resume_from_checkpoint=resumed)


def _follow(
    rank: Rank,
    config: SFTConfig,
    folder: Path,
    base: Path,
    examples: Sequence[TokenizedExample],
    resumed: str | None,
) -> None:
    """What a rank beside the first one does, in a process of its own."""
    from transformers import AutoTokenizer, set_seed

    set_seed(config.seed)
    run = _Run(config, folder, base, None)
    trainer = run.trainer(run.model(), AutoTokenizer.from_pretrained(base), examples, rank)
    fit(trainer, rank, run.device, resumed)


def _below(layers: int, adapted: int | None) -> str | None:
    """Names of what lies below the last `adapted` of a model's layers, as a regular expression."""
    left = layers - adapted if adapted is not None else 0
    return rf".*\.layers\.({'|'.join(map(str, range(left)))})\..*" if left > 0 else None


def keep_gradients_on_cpu(model: Any) -> None:
    """bitsandbytes packs NF4 weights for AVX512 on the first forward in eval mode, after which no
    gradient flows through them, with only a warning: switch that off."""
    import bitsandbytes as bnb

    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):
            module.support_avx512bf16_for_cpu = False


def stop_after(deadline: float) -> Any:
    """A callback that ends the training with the first step that ends after `deadline`
    (time.monotonic), with a checkpoint of it."""
    from transformers import TrainerCallback

    class Deadline(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if time.monotonic() >= deadline and state.global_step < state.max_steps:
                control.should_save = control.should_training_stop = True

    return Deadline()


def make_trainer(
    arguments: Any,
    model: Any,
    tokenizer: Any,
    dataset: Any,
    packing: bool,
    by_length: Sequence[int] | None = None,
    rank: Rank = ALONE,
) -> Any:
    """TRL's trainer; on a CPU, and for batches by length, with a loss that projects onto the
    vocabulary only where a label is. packing: a batch is one row, of which transformers masks the
    examples from each other by their positions, in every attention implementation. by_length: the
    examples' lengths, where batches are of examples of about equal length: padded at the right,
    causal attention needs no mask for them. rank: whose share of the batches it learns; the loss
    and the gradients are those of all ranks' batches together."""
    from transformers import PrinterCallback
    from trl import SFTTrainer
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    from coding_framework.agents.threads import ThreadChoice

    threads = ThreadChoice(rank.threads if arguments.use_cpu else 1)

    class AnswerLossTrainer(SFTTrainer):  # type: ignore[misc]
        def _get_train_sampler(self, *given: Any, **named: Any) -> Any:
            if by_length is None and rank.of == 1:
                return super()._get_train_sampler(*given, **named)
            return EpochOrder(
                by_length or [1] * len(dataset),
                arguments.per_device_train_batch_size,
                arguments.data_seed,
                by_length=by_length is not None,
                rank=rank.number,
                ranks=rank.of,
            )

        def _get_num_items_in_batch(self, *given: Any, **named: Any) -> Any:
            found = super()._get_num_items_in_batch(*given, **named)
            return found if found is None else rank.sum(found)

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            threads.set()
            loss = super().training_step(model, inputs, num_items_in_batch)
            if self.accelerator.sync_gradients:
                rank.sum_gradients(weights)
            return rank.sum(loss)

        def floating_point_ops(self, inputs: Any) -> int:
            return 0  # nobody reads them, and to count them takes a walk through the model a step

        def compute_loss(
            self,
            model: Any,
            inputs: Any,
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            own = by_length is not None or inputs["input_ids"].device.type == "cpu"
            if not own or return_outputs:
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            with self.accelerator.autocast():
                total = answer_loss(self.accelerator.unwrap_model(model), inputs)
            return total / (num_items_in_batch or (inputs["labels"][:, 1:] != -100).sum())

    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    trainer = AnswerLossTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(pad_token_id=pad, padding_free=packing),
    )
    trainer.remove_callback(PrinterCallback)  # the progress line and metrics.jsonl say it
    weights = [weight for weight in trainer.model.parameters() if weight.requires_grad]
    for weight in weights:  # TRL makes them bfloat16 where the base is NF4: a step of less than
        weight.data = weight.data.float()  # 1/256 of a weight would be lost
    return trainer
