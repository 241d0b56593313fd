"""What SFT finds out after each epoch: the held-out loss and the pass rate, once each, whatever
happens to the run or to the evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from coding_framework.data.examples import held_out_examples, training_examples
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.monitoring.progress import Progress
from coding_framework.store.lines import JsonlSink
from coding_framework.store.records import SFTEpoch
from coding_framework.store.training_log import read_sft_records
from coding_framework.training.sft import (
    SFTConfig,
    SFTResult,
    load_examples,
    load_held_out,
    make_trainer,
    train_sft,
)
from coding_framework.training.sft_examples import check_apart, tokenize_example
from coding_framework.training.sft_watch import Watch
from coding_framework.types import HeldOutScore, Role, TrainingExample
from support.tiny_lm import tiny_sft

pytestmark = pytest.mark.integration
tiny = partial(
    tiny_sft,
    num_examples=4,
    optimizer_examples=2,
    held_out_examples=6,
    lora_dropout=0.1,
    epochs=2.0,
)

STEPS = 6
"""Of an epoch."""


@pytest.fixture(scope="module")
def examples() -> list[TrainingExample]:
    return load_examples(tiny("", ""), training_examples)


@pytest.fixture(scope="module")
def held_out() -> list[TrainingExample]:
    return load_held_out(tiny("", ""), held_out_examples)


class Evaluation:
    """Notes what it is handed; `fails`: what it raises for a label."""

    def __init__(self, **fails: BaseException) -> None:
        self.fails = {name.replace("_", "-"): error for name, error in fails.items()}
        self.asked: list[str] = []

    def __call__(self, model: Path, adapter: Path, label: str) -> HeldOutScore:
        self.asked.append(label)
        assert (model / "config.json").exists()
        assert (adapter / "adapter_model.safetensors").exists()
        if label in self.fails:
            raise self.fails[label]
        return HeldOutScore(judged=8, compiled=5, correct=len(self.asked))


def train(
    config: SFTConfig,
    examples: Sequence[TrainingExample],
    held_out: Sequence[TrainingExample] = (),
    evaluate: Evaluation | None = None,
) -> SFTResult:
    return train_sft(config, examples, resolve=Path, held_out=held_out, evaluate=evaluate)


@pytest.fixture(scope="module")
def looked_at(
    base: Path,
    examples: list[TrainingExample],
    held_out: list[TrainingExample],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[SFTConfig, SFTResult]:
    config = tiny(base, tmp_path_factory.mktemp("sft") / "run")
    return config, train(config, examples, held_out, Evaluation())


def weights(config: SFTConfig) -> bytes:
    return (Path(config.output_dir) / "generator" / "adapter_model.safetensors").read_bytes()


def test_each_epoch_has_a_held_out_loss_and_a_score(
    looked_at: tuple[SFTConfig, SFTResult],
) -> None:
    config, result = looked_at
    assert [(e.epoch, e.step) for e in result.epochs] == [(0, 0), (1, STEPS), (2, 2 * STEPS)]
    losses = [e.held_out_loss for e in result.epochs]
    assert losses[0] > losses[1] > losses[2] > 0  # type: ignore[operator]
    assert [e.score.correct if e.score else None for e in result.epochs] == [None, 1, 2]
    records = read_sft_records(Path(config.output_dir) / "metrics.jsonl")
    assert [s["step"] for s in records.steps] == list(range(1, 2 * STEPS + 1))
    assert tuple(records.epochs) == result.epochs
    stored = json.loads((Path(config.output_dir) / "config.json").read_text())["result"]
    assert SFTResult.model_validate(stored) == result


def test_the_held_out_loss_is_the_mean_over_answer_tokens(
    looked_at: tuple[SFTConfig, SFTResult], base: Path, held_out: list[TrainingExample]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    before = looked_at[1].epochs[0]
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(base)
    total, tokens = 0.0, 0
    for example in held_out:
        made = tokenize_example(tokenizer, example)
        with torch.no_grad():
            scores = model(torch.tensor([made.input_ids])).logits[0].log_softmax(-1)
        for at in range(made.prompt_length, len(made.input_ids)):
            total -= float(scores[at - 1, made.input_ids[at]])
            tokens += 1
    assert before.held_out_tokens == tokens
    assert before.held_out_loss == pytest.approx(total / tokens, rel=0.02)  # bfloat16


def test_looking_changes_nothing_of_the_training(
    looked_at: tuple[SFTConfig, SFTResult],
    base: Path,
    examples: list[TrainingExample],
    tmp_path: Path,
) -> None:
    blind = tiny(base, tmp_path / "blind")
    assert train(blind, examples).epochs == ()
    assert weights(blind) == weights(looked_at[0])


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_evaluates_looks_at_each_epoch_once(
    looked_at: tuple[SFTConfig, SFTResult],
    base: Path,
    examples: list[TrainingExample],
    held_out: list[TrainingExample],
    tmp_path: Path,
) -> None:
    config = tiny(base, tmp_path / "run")
    for number, asked in ((1, ["epoch-1"]), (2, ["epoch-1", "epoch-2"])):
        evaluate = Evaluation(**{f"epoch_{number}": KeyboardInterrupt()})
        with pytest.raises(KeyboardInterrupt):
            train(config, examples, held_out, evaluate)
        assert evaluate.asked == asked
    last = Evaluation()
    result = train(config, examples, held_out, last)
    assert last.asked == ["epoch-2"]
    whole = looked_at[1]
    assert [e.step for e in result.epochs] == [e.step for e in whole.epochs]
    assert [e.held_out_loss for e in result.epochs] == [e.held_out_loss for e in whole.epochs]
    assert weights(config) == weights(looked_at[0])


def test_an_evaluation_that_fails_is_recorded_and_said_and_ends_nothing(
    base: Path,
    examples: list[TrainingExample],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from coding_framework.monitoring.logs import configure_logging

    configure_logging(tmp_path / "log.jsonl")
    evaluate = Evaluation(epoch_1=InfrastructureError("the judge is gone: start it again"))
    result = train(tiny(base, tmp_path / "run"), examples, evaluate=evaluate)
    assert [(e.epoch, e.held_out_loss, e.score is None) for e in result.epochs] == [
        (1.0, None, True),
        (2.0, None, False),
    ]
    assert result.epochs[0].fault == "InfrastructureError: the judge is gone: start it again"
    said = capsys.readouterr().err
    assert "the judge is gone" in said
    assert "parameters are trained" in said
    assert "after epoch 2: 2 of 8 correct" in said


def test_steps_and_epochs_go_to_the_file_and_to_wandb_and_pauses_are_not_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sent(list[tuple[int, dict[str, Any]]]):
        def log(self, step: int, values: dict[str, Any]) -> None:
            self.append((step, values))

    import torch

    now = [100.0]
    sent, line = Sent(), Progress("sft", 2, "steps", stream=StringIO())
    epoch = SFTEpoch(
        epoch=1.0, step=2, held_out_loss=0.5, held_out_tokens=9, seconds=1.0,
        score=HeldOutScore(judged=4, compiled=3, correct=1),
    )  # fmt: skip
    with JsonlSink(tmp_path / "metrics.jsonl") as sink:
        watch = Watch(torch.nn.Linear(1, 1), sink, sent, line, 1.0)  # type: ignore[arg-type]
        monkeypatch.setattr("coding_framework.training.sft_watch.time.monotonic", lambda: now[0])
        watch.callback().on_train_begin()
        now[0] += 0.25
        with watch.paused("looking"):
            now[0] += 7
        watch.record(1, 2.0, 1.0, 1e-3)
        now[0] += 0.5
        watch.record(2, 1.0, 1.0, 1e-3)
        watch.record_epoch(epoch)
    records = read_sft_records(tmp_path / "metrics.jsonl")
    assert [values for _, values in sent] == [*records.steps, epoch.model_dump(mode="json")]
    assert [step for step, _ in sent] == [1, 2, 2]
    assert [step["seconds"] for step in records.steps] == [0.25, 0.75]
    assert "loss 1.500, after epoch 1: held-out 0.500 and 1 of 4 correct" in line.line()


def trainer_of(base: Path, folder: Path, examples: list[TrainingExample], packing: bool) -> Any:
    """The trainer and a batch of all examples, in float32."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig as TRLConfig

    tokenizer = AutoTokenizer.from_pretrained(base)
    made = [tokenize_example(tokenizer, e) for e in examples]
    rows = [{"input_ids": list(e.input_ids), "labels": e.labels} for e in made]
    arguments = TRLConfig(
        output_dir=str(folder), max_length=None, use_cpu=True, report_to=[], bf16=False,
        dataset_kwargs={"skip_prepare_dataset": True}, gradient_checkpointing=False,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    torch.manual_seed(0)
    model = get_peft_model(model, lora)
    trainer = make_trainer(arguments, model, tokenizer, Dataset.from_list(rows), packing)
    return trainer, trainer.data_collator(rows)


def test_a_batch_in_one_row_has_the_loss_and_the_gradients_of_the_padded_one(
    base: Path, examples: list[TrainingExample], tmp_path: Path
) -> None:
    import torch

    three, losses, norms = examples[2:5], [], []
    for packing in (True, False):
        trainer, batch = trainer_of(base, tmp_path, three, packing)
        assert len(batch["input_ids"]) == (1 if packing else 3)
        for of_trl in (True, False):  # its loss is a GPU's, ours a CPU's
            trainer.model.train()
            trainer.model.zero_grad()
            loss = trainer.compute_loss(trainer.model, dict(batch), return_outputs=of_trl)
            loss = loss[0] if of_trl else loss
            loss.backward()
            gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
            losses.append(loss.item())
            norms.append(float(torch.nn.utils.get_total_norm(gradients)))
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)
    assert norms == pytest.approx([norms[0]] * 4, rel=1e-4)
    trainer, packed = trainer_of(base, tmp_path, three, packing=True)
    del packed["position_ids"]  # now each example sees those before it
    mixed = trainer.compute_loss(trainer.model, packed).item()
    assert mixed != pytest.approx(losses[0], rel=1e-4)


def test_examples_that_are_not_apart_are_refused(
    examples: list[TrainingExample], held_out: list[TrainingExample]
) -> None:
    assert {e.role for e in held_out} == {Role.GENERATOR, Role.OPTIMIZER}
    check_apart(examples, held_out)
    for trained, unseen in ((held_out, held_out), (examples, examples)):
        with pytest.raises(UsageError, match="held_out_examples"):
            check_apart(trained, unseen)
