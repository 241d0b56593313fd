"""SFT by several processes: they learn what one learns, and end together."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from coding_framework.data.examples import training_examples
from coding_framework.errors import InfrastructureError, OutOfTimeError, UsageError
from coding_framework.store.training_log import read_sft_records
from coding_framework.training import recipes, sft, sft_ranks
from coding_framework.training.sft import SFTConfig, SFTResult, load_examples, train_sft
from coding_framework.types import TrainingExample
from support.children import children_named
from support.ranks import join_and_say_nothing
from support.tiny_lm import tiny_sft
from support.waiting import until

pytestmark = pytest.mark.integration
tiny = partial(
    tiny_sft, num_examples=8, epochs=2.0, by_length=True, dtype="float32", quantization="none"
)


@pytest.fixture(scope="module")
def examples() -> list[TrainingExample]:
    return load_examples(tiny("unused", "unused"), training_examples)


def train(config: SFTConfig, examples: Sequence[TrainingExample]) -> SFTResult:
    return train_sft(config, examples, resolve=Path)


def steps(config: SFTConfig) -> list[tuple[float, float]]:
    records = read_sft_records(Path(config.output_dir) / "metrics.jsonl").steps
    return [(r["loss"], r["gradient_norm"]) for r in records]


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=pytest.mark.ci), pytest.param("cuda", marks=pytest.mark.cuda)],
)
def test_two_processes_learn_what_one_learns_from_as_many_examples_a_step(
    base: Path, examples: list[TrainingExample], tmp_path: Path, device: str
) -> None:
    import torch
    from safetensors.torch import load_file

    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    one = tiny(base, tmp_path / "one", batch_size=2, device=device)
    two = tiny(base, tmp_path / "two", num_gpus=2, device=device)
    alone = train(one, examples[:10])
    with pytest.raises(OutOfTimeError, match="after step 1 of 10: the same command goes on"):
        train(two.model_copy(update={"minutes": 1e-6}), examples[:10])
    together = train(two, examples[:10])
    assert alone.steps == together.steps == 10
    for expected, found in zip(steps(one), steps(two), strict=True):
        assert found == pytest.approx(expected, rel=1e-3)
    assert together.tokens == alone.tokens
    adapters = [
        load_file(Path(r.adapters["generator"]) / "adapter_model.safetensors")
        for r in (alone, together)
    ]
    for name, weights in adapters[0].items():
        assert (weights - adapters[1][name]).abs().max() < 2e-3, name
    with pytest.raises(UsageError, match="num_gpus"):
        train(tiny(base, tmp_path / "two", num_gpus=1), examples[:10])


def test_a_process_that_is_killed_ends_the_run_in_a_sentence(
    base: Path, examples: list[TrainingExample], tmp_path: Path
) -> None:
    config = tiny(base, tmp_path / "run", num_gpus=2, epochs=400.0)
    log = tmp_path / "run" / "metrics.jsonl"

    def kill() -> None:
        until(lambda: log.exists() and log.read_text().count("\n") > 2)
        for child in children_named("spawn_main"):
            child.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(InfrastructureError, match="signal 9: see that there is memory enough"):
        train(config, examples)
    killer.join()


def test_a_process_that_ends_before_it_joins_is_not_waited_for() -> None:
    began = time.monotonic()
    with (
        pytest.raises(InfrastructureError, match="setsid failed"),
        sft_ranks.followed("cpu", 2, os.setsid) as rank,  # takes no rank: it ends at once
        rank.joined("cpu"),
    ):
        pytest.fail("joined alone")
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_processes_that_do_not_reach_each_other_are_said(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    import torch

    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    monkeypatch.setattr(sft_ranks, "_REACH_S", 2.0)
    with (
        pytest.raises(InfrastructureError, match="do not reach each other: NCCL_DEBUG=INFO"),
        sft_ranks.followed(device, 2, join_and_say_nothing, device) as rank,
        rank.joined(device),
    ):
        rank.begin_equal([torch.ones(1000, device=device)])


def test_a_first_sum_that_never_returns_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NCCL's seems to: the call connects the ranks and waits for them; no signal ends it."""
    import torch

    returns = threading.Event()
    monkeypatch.setattr(sft_ranks, "_REACH_S", 0.5)
    monkeypatch.setattr(sft_ranks, "_END_S", 0.5)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda *_, **__: returns.wait(60))
    monkeypatch.setattr(
        "torch.distributed.distributed_c10d._abort_process_group", lambda: returns.wait(60)
    )
    began = time.monotonic()
    with (
        pytest.raises(InfrastructureError, match="do not reach each other: NCCL_DEBUG=INFO"),
        sft_ranks.followed("cpu", 2, join_and_say_nothing, "cpu") as rank,
        rank.joined("cpu"),
    ):
        rank.begin_equal([torch.ones(1000)])
    assert time.monotonic() - began < 40
    returns.set()
    monkeypatch.undo()
    sft_ranks._end_sums()
    assert not torch.distributed.is_initialized()


def test_only_the_first_rank_counts_the_gpus(
    base: Path, examples: list[TrainingExample], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = tiny(base, tmp_path, num_gpus=2, device="cuda")
    assert sft._Run(config, tmp_path, base, None).device == "cuda"  # as rank 1, which sees its own
    with pytest.raises(UsageError, match="2 GPUs were asked for and 1 are here"):
        train(config, examples)


def test_gpus_that_are_not_there_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    recipes.require_gpus("auto", 2)
    recipes.require_gpus("cpu", 4)
    message = re.escape("4 GPUs were asked for and 2 are here: lower --num-gpus")
    with pytest.raises(UsageError, match=message):
        recipes.require_gpus("auto", 4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UsageError, match="1 GPUs were asked for and 0 are here"):
        recipes.require_gpus("cuda", 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert sft_ranks._visible_gpus(2) == ["5", "7"]


@pytest.mark.parametrize("before", [None, "5,7"])
def test_a_process_sees_its_gpu_alone(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    child = sft_ranks._started("7", os.getenv, "CUDA_VISIBLE_DEVICES")
    assert child.result() == "7"
    child.end()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before
