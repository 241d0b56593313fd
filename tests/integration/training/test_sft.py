"""SFT on a tiny model: it learns, on answers alone, and survives a SIGKILL."""

from __future__ import annotations

import json
import os
import pickle
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coding_framework.agents.policies import prompt_ids
from coding_framework.agents.prompts import messages_for_example, render_answer
from coding_framework.data.example_store import ExampleStore
from coding_framework.data.examples import held_out_examples, training_examples
from coding_framework.errors import InfrastructureError, OutOfTimeError, TrainingError, UsageError
from coding_framework.store.checkpoints import last_sft_checkpoint
from coding_framework.store.model_card import card_of
from coding_framework.store.training_log import read_sft_records
from coding_framework.training import sft_examples, sft_loss
from coding_framework.training.sft import (
    SFTConfig,
    SFTResult,
    keep_gradients_on_cpu,
    load_examples,
    train_sft,
)
from coding_framework.training.sft_examples import tokenize_example
from coding_framework.training.sft_loss import answer_loss
from coding_framework.training.sft_watch import Watch
from coding_framework.types import Role, TrainingExample
from support.children import children_named
from support.tiny_lm import tiny_sft
from support.waiting import at_most_cpu_s, until

pytestmark = pytest.mark.integration
tiny = partial(tiny_sft, num_examples=10, epochs=1.0)
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def examples() -> list[TrainingExample]:
    return load_examples(tiny("unused", "unused"), training_examples)


def train(config: SFTConfig, examples: list[TrainingExample]) -> SFTResult:
    return train_sft(config, examples, resolve=Path)


@pytest.fixture(scope="module")
def trained(
    base: Path, examples: list[TrainingExample], tmp_path_factory: pytest.TempPathFactory
) -> tuple[SFTConfig, SFTResult]:
    config = tiny(base, tmp_path_factory.mktemp("sft") / "run", epochs=3.0)
    return config, train(config, examples)


def test_it_learns_and_leaves_adapters_model_and_config(
    trained: tuple[SFTConfig, SFTResult],
) -> None:
    config, result = trained
    folder = Path(config.output_dir)
    assert result.steps == 39
    assert result.last_loss < result.first_loss - 0.5
    assert result.min_gradient_norm > 0
    assert result.examples == {"generator": 10, "optimizer": 3}
    weights = [folder / role / "adapter_model.safetensors" for role in ("generator", "optimizer")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    stored = json.loads((folder / "config.json").read_text())
    assert stored["config"] == config.model_dump(mode="json")
    assert "one adapter" in stored["adapter"]
    assert stored["prompt_version"] == "v1"
    assert not (folder / "checkpoints").exists()
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [s["step"] for s in steps] == list(range(1, 40))


def test_it_goes_on_from_an_adapter(
    trained: tuple[SFTConfig, SFTResult],
    base: Path,
    examples: list[TrainingExample],
    tmp_path: Path,
) -> None:
    config, result = trained
    start = str(Path(config.output_dir) / "generator")
    going_on = tiny(base, tmp_path / "more", start_adapter=start, learning_rate=1e-9)
    more = train(going_on, examples)
    assert more.first_loss < result.last_loss + 0.5
    cards = [card_of(Path(folder)) for folder in (start, tmp_path / "more" / "generator")]
    assert cards[0] is not None
    assert cards[1] is not None
    assert cards[1].parent == cards[0].digest
    for wrong, said in (
        ({"lora_r": 4}, "does not fit"),
        ({"lora_layers": 1}, "more than asked for"),
        ({"lora_alpha": 3}, "scale"),
        ({"start_adapter": str(tmp_path)}, "there is no adapter"),
    ):
        folder = tmp_path / said.replace(" ", "_")
        with pytest.raises(UsageError, match=said):
            train(tiny(base, folder, **{"start_adapter": start, **wrong}), examples)


def test_a_batch_padded_at_the_right_has_the_loss_of_its_examples_alone(
    base: Path, examples: list[TrainingExample]
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False),
    )
    chosen = [tokenize_example(tokenizer, e) for e in (examples[0], examples[-1])]
    longest = max(len(e.input_ids) for e in chosen)
    rows = {
        "input_ids": [[*e.input_ids, *[0] * (longest - len(e.input_ids))] for e in chosen],
        "labels": [[*e.labels, *[-100] * (longest - len(e.input_ids))] for e in chosen],
    }
    batch = {name: torch.tensor(ids) for name, ids in rows.items()}
    whole = answer_loss(model, batch)
    whole.backward()
    gradient = next(p.grad for p in model.parameters() if p.grad is not None).clone()
    model.zero_grad()
    alone = [
        answer_loss(model, {"input_ids": torch.tensor([ids]), "labels": torch.tensor([labels])})
        for ids, labels in ((e.input_ids, e.labels) for e in chosen)
    ]
    assert float(whole) == pytest.approx(float(sum(alone)), rel=1e-5)
    sum(alone).backward()
    other = next(p.grad for p in model.parameters() if p.grad is not None)
    assert torch.allclose(gradient, other, rtol=1e-3, atol=1e-5)


@pytest.mark.ci
def test_processes_tokenise_many_examples_as_one_does_and_in_their_order(
    base: Path, examples: list[TrainingExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    alone = sft_examples.tokenize_examples(tokenizer, examples, "v3", 1)
    monkeypatch.setattr(sft_examples, "_A_PROCESS", 1)
    monkeypatch.setattr(sft_examples, "_CHUNK", 3)
    told: list[bytes] = []

    def pool(*arguments: Any) -> Any:
        told.append(pickle.dumps(arguments[-1]))
        return ProcessPoolExecutor(*arguments)

    monkeypatch.setattr(sft_examples, "ProcessPoolExecutor", pool)
    assert sft_examples.tokenize_examples(tokenizer, examples, "v3", 2) == alone
    assert sft_examples.tokenize_examples(tokenizer, [], "v3", 2) == []
    assert [len(t) < 4096 for t in told] == [True]  # fits a pipe: they start side by side


@pytest.mark.ci
def test_a_killed_process_that_tokenises_ends_it_in_a_sentence(
    base: Path, examples: list[TrainingExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer

    def kill() -> None:
        until(lambda: bool(children_named("spawn_main")))
        children_named("spawn_main")[0].kill()

    monkeypatch.setattr(sft_examples, "_A_PROCESS", 1)
    tokenizer = AutoTokenizer.from_pretrained(base)
    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(InfrastructureError, match="has ended: see that there is memory enough"):
        sft_examples.tokenize_examples(tokenizer, examples, "v3", 2)
    killer.join()


def test_a_loss_in_parts_is_the_loss(
    base: Path, examples: list[TrainingExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False),
    )
    one = tokenize_example(AutoTokenizer.from_pretrained(base), examples[0])
    batch = {"input_ids": torch.tensor([one.input_ids]), "labels": torch.tensor([one.labels])}
    found = []
    for at_once in (4096, 50):
        monkeypatch.setattr(sft_loss, "AT_ONCE", at_once)
        model.zero_grad()
        loss = answer_loss(model, batch)
        loss.backward()
        gradient = next(p.grad for p in model.parameters() if p.grad is not None)
        found.append((float(loss), float(gradient.norm())))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_run_that_reached_its_limit_of_time_goes_on_as_if_it_had_not(
    base: Path,
    examples: list[TrainingExample],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def config(name: str, minutes: float | None) -> SFTConfig:
        return tiny(
            base, tmp_path / name, batch_size=3, by_length=True, epochs=2.0, minutes=minutes
        )

    whole = train(config("whole", None), examples)
    for step in (1, 2):
        with pytest.raises(OutOfTimeError, match=f"after step {step} of {whole.steps}: the same"):
            train(config("parts", 1e-6), examples)
    capsys.readouterr()
    parts = train(config("parts", None), examples)
    assert f"sft: 2/{whole.steps} steps, 0 s so far" in capsys.readouterr().err
    assert (parts.steps, parts.last_loss) == (whole.steps, pytest.approx(whole.last_loss, rel=1e-6))
    lines = [read_sft_records(tmp_path / n / "metrics.jsonl").steps for n in ("whole", "parts")]
    losses = [[entry["loss"] for entry in found] for found in lines]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert (tmp_path / "parts" / "model" / "config.json").exists()


def test_the_merged_model_answers_as_base_and_adapter(
    trained: tuple[SFTConfig, SFTResult], examples: list[TrainingExample]
) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config, result = trained
    tokenizer = AutoTokenizer.from_pretrained(result.model)
    ids = torch.tensor([tokenize_example(tokenizer, examples[0]).input_ids])
    base = AutoModelForCausalLM.from_pretrained(config.base_model, dtype=torch.float32)
    with torch.no_grad():
        plain = base(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(result.model, dtype=torch.float32)
        adapted = PeftModel.from_pretrained(base, result.adapters["optimizer"])(ids).logits
        whole = merged(ids).logits
    change, error = (adapted - plain).abs().max(), (adapted - whole).abs().max()
    assert error < 1e-4 * change, (float(error), float(change))


def test_rl_starts_from_the_adapter_with_the_very_weights_of_the_merged_model(
    trained: tuple[SFTConfig, SFTResult], tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file

    script = runpy.run_path(str(ROOT / "run_multiturn_rl_training.py"))
    given = {"generator_checkpoint": trained[1].adapters["generator"]}
    made = script["start_models"](given, script["RecipeFile"](), tmp_path)["model_path"]
    weights = load_file(Path(made) / "model.safetensors")
    merged = load_file(Path(trained[1].model) / "model.safetensors")
    assert weights.keys() == merged.keys()
    assert {w.dtype for w in weights.values()} == {torch.float32}
    assert all(torch.equal(weights[name], merged[name]) for name in merged)


def test_a_finished_run_is_returned_and_other_settings_are_refused(
    trained: tuple[SFTConfig, SFTResult], examples: list[TrainingExample]
) -> None:
    config, result = trained
    with at_most_cpu_s(2.0):
        assert train(config, examples) == result
    with pytest.raises(UsageError, match=r"other settings \(learning_rate was "):
        train(config.model_copy(update={"learning_rate": 1e-4}), examples)


def test_loss_is_on_the_answer_and_the_token_that_ends_it(
    base: Path, examples: list[TrainingExample]
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    optimizer = next(e for e in examples if e.role is Role.OPTIMIZER)
    for example in (examples[0], optimizer):
        made = tokenize_example(tokenizer, example)
        prompt = prompt_ids(tokenizer, messages_for_example(example))
        assert list(made.input_ids[: made.prompt_length]) == prompt
        learnt = [t for t in made.labels if t != -100]
        assert learnt[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(learnt[:-1]) == render_answer(example)


def test_examples_that_are_too_long_are_left_out_and_counted(
    base: Path, examples: list[TrainingExample], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    lengths = sorted(len(tokenize_example(tokenizer, e).input_ids) for e in examples)
    config = tiny(base, tmp_path / "run", max_length=lengths[8], max_steps=2)
    assert train(config, examples).left_out == sum(n > lengths[8] for n in lengths)
    with pytest.raises(UsageError, match="raise --max-length"):
        train(tiny(base, tmp_path / "none", max_length=64), examples)


def test_the_examples_of_a_file_are_learnt_too_and_a_changed_file_is_refused(
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "cache"))
    main = runpy.run_path(str(ROOT / "run_sft_training.py"))["main"]
    extra, moved = tmp_path / "extra.jsonl", tmp_path / "moved.jsonl"
    repairs = [e for e in training_examples(Role.OPTIMIZER, 20) if e.kind == "repair"]

    def run(file: Path) -> tuple[int, str, str]:
        sizes = ("--num-examples", "4", "--optimizer-examples", "2", "--max-steps", "2")
        off = ("--held-out-examples", "0", "--held-out-tasks", "0", "--no-wandb")
        flags = (*sizes, *off, "--extra-examples", str(file), "--output-dir", str(tmp_path / "run"))
        status = main(["--base-model", str(base), "--device", "cpu", *flags])
        said = capsys.readouterr()
        return status, said.out, said.err

    ExampleStore.write(extra, repairs[:3])
    status, out, _ = run(extra)
    result = SFTResult.model_validate_json(out)
    assert (status, result.extra_examples) == (0, 3)
    assert result.examples == {"generator": 4, "optimizer": 5}
    ExampleStore.write(moved, repairs[:3])
    assert run(moved)[:2] == (0, out)
    ExampleStore.write(extra, repairs[:2])
    status, _, err = run(extra)
    assert status == 2
    assert "other settings (extra_examples)" in err
    held_out = held_out_examples(Role.OPTIMIZER, 1)
    ExampleStore.write(extra, [*repairs[:2], *held_out])
    status, _, err = run(extra)
    assert status == 2
    assert f"{extra} holds 1 examples of held-out tasks" in err


@pytest.mark.slow
def test_the_generator_learns_the_best_kernels_where_asked_and_a_folder_keeps_to_its_own(
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from transformers import AutoTokenizer

    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "cache"))
    main = runpy.run_path(str(ROOT / "run_sft_training.py"))["main"]

    def run(folder: str, *flags: str) -> tuple[int, str, str]:
        sizes = ("--num-examples", "24", "--optimizer-examples", "0", "--max-steps", "24")
        off = ("--held-out-examples", "0", "--held-out-tasks", "0", "--no-wandb")
        where = (
            "--base-model",
            str(base),
            "--device",
            "cpu",
            "--output-dir",
            str(tmp_path / folder),
        )
        status = main([*where, *sizes, *off, *flags])
        said = capsys.readouterr()
        return status, said.out, said.err

    tokenizer = AutoTokenizer.from_pretrained(base)
    tokens = {}
    for target in ("naive", "best"):
        status, out, _ = run(target, "--generator-target", target)
        tokens[target] = SFTResult.model_validate_json(out).tokens
        drawn = training_examples(Role.GENERATOR, 24, max_steps=3, target=target)
        taught = sum(len(tokenize_example(tokenizer, e).input_ids) for e in drawn)
        assert (status, tokens[target]) == (0, taught)
    assert tokens["naive"] < tokens["best"]
    assert run("naive")[0] == 0
    record = tmp_path / "naive" / "config.json"
    stored = json.loads(record.read_text())
    del stored["config"]["generator_target"]  # a run from before there was a choice
    record.write_text(json.dumps(stored))
    assert run("naive")[0] == 0
    status, _, err = run("naive", "--generator-target", "best")
    assert status == 2
    assert "other settings (generator_target was " in err


def test_a_checkpoint_cut_off_by_a_kill_is_not_used(tmp_path: Path) -> None:
    whole, cut = tmp_path / "checkpoint-20", tmp_path / "checkpoint-40"
    for folder in (whole, cut):
        folder.mkdir()
    (whole / "trainer_state.json").write_text('{"global_step": 20}')
    (cut / "trainer_state.json").write_text('{"global_st')
    assert last_sft_checkpoint(tmp_path)[0] == whole
    assert not cut.exists()
    assert last_sft_checkpoint(tmp_path / "nothing") == (None, 0)


def test_weights_without_gradient_stop_the_run() -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    model.weight.grad = torch.ones(2, 2)
    watch = Watch(model, None, None, None, 1.0)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=r"1 of 2 trained weights .* \(first: bias\)"):
        watch.check_gradients()
    with pytest.raises(TrainingError, match="all gradients are zero"):
        watch.record(1, 1.0, 0.0, 1e-3)
    with pytest.raises(TrainingError, match="lower --learning-rate"):
        watch.record(1, float("nan"), 1.0, 1e-3)


def test_on_four_bit_weights_an_adapter_has_gradients_on_a_cpu_and_full_precision(
    base: Path, examples: list[TrainingExample], tmp_path: Path
) -> None:
    pytest.importorskip("bitsandbytes")
    import torch
    from safetensors.torch import load_file

    config = tiny(base, tmp_path / "run", quantization="nf4", max_steps=3)
    result = train(config, examples)
    assert result.quantization == "nf4"
    assert result.min_gradient_norm > 0
    adapter = load_file(Path(result.adapters["generator"]) / "adapter_model.safetensors")
    assert {weight.dtype for weight in adapter.values()} == {torch.float32}


def test_the_cpu_guard_reaches_every_four_bit_layer() -> None:
    bnb = pytest.importorskip("bitsandbytes")
    layer = bnb.nn.Linear4bit(64, 64)
    layer.support_avx512bf16_for_cpu = True
    keep_gradients_on_cpu(layer)
    assert layer.support_avx512bf16_for_cpu is False


# --- the script -----------------------------------------------------------------------------------


def script(base: Path, folder: Path, *more: str) -> list[str]:
    return [
        sys.executable, str(ROOT / "run_sft_training.py"), "--base-model", str(base),
        "--output-dir", str(folder), "--num-examples", "24", "--optimizer-examples", "4",
        "--device", "cpu", "--lora-r", "8", "--save-every", "5",
        "--held-out-examples", "4", "--held-out-tasks", "2", *more,
    ]  # fmt: skip


def environment() -> Mapping[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def has_whole_checkpoint(folder: Path) -> bool:
    """Whether one is there that a kill now would leave: its last file is written to the end."""
    for state in folder.glob("checkpoints/checkpoint-*/trainer_state.json"):
        with suppress(ValueError):
            return bool(json.loads(state.read_text()))
    return False


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_a_sigkill_the_same_command_goes_on_from_the_checkpoint(
    base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        script(base, folder), env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + 240
    while not has_whole_checkpoint(folder):
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = subprocess.run(
        script(base, folder), env=environment(), capture_output=True, text=True, check=True
    )
    assert "sft_resumed" in (folder / "log.jsonl").read_text()
    result = json.loads(done.stdout)
    assert result["steps"] == 28
    records = read_sft_records(folder / "metrics.jsonl")
    assert [entry["step"] for entry in records.steps] == list(range(1, 29))
    assert [(e.epoch, e.step, e.fault) for e in records.epochs] == [(0.0, 0, ""), (1.0, 28, "")]
    assert records.epochs[1].score is not None
    assert len((folder / "evaluations" / "epoch-1.jsonl").read_text().splitlines()) == 2
    assert (folder / "generator" / "adapter_model.safetensors").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--learning-rate", "-1"), "--learning-rate cannot be -1"),
        (("--base-model", "nobody/nothing"), "HuggingFaceTB/SmolLM2-135M-Instruct"),
        (("--no-such-flag",), "--no-such-flag"),
        (("--extra-examples", "/nowhere.jsonl"), "cuda-rl data mistakes"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(
    base: Path,
    tmp_path: Path,
    flags: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "cache"))
    main = runpy.run_path(str(ROOT / "run_sft_training.py"))["main"]
    try:
        status = main(script(base, tmp_path / "run", *flags)[2:])
    except SystemExit as e:  # argparse
        status = e.code
    assert status == 2
    assert said in capsys.readouterr().err.strip().splitlines()[-1]
