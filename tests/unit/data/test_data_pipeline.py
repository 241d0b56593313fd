"""The stream of examples: deterministic, resumable, led by a curriculum where asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from coding_framework.data.curriculum_manager import Outcome
from coding_framework.data.data_pipeline import CUDADataLoader, CUDADataPipeline, DataPipelineConfig
from coding_framework.data.example_store import ExampleStore
from coding_framework.data.examples import (
    UNVERIFIED,
    training_examples,
)
from coding_framework.data.synthesis.catalog import FAMILIES
from coding_framework.data.synthesis.receipts import packaged_receipts
from coding_framework.errors import UsageError
from coding_framework.types import Role, Split
from support.time_bar import machine_factor

pytestmark = pytest.mark.unit


def _pipeline(**settings: object) -> CUDADataPipeline:
    config = DataPipelineConfig.model_validate({"max_steps": 2, **settings})
    return CUDADataPipeline(config, receipts=packaged_receipts())


def test_an_epoch_holds_every_example_once_and_the_next_is_in_another_order() -> None:
    pipeline = _pipeline()
    first = [e.id for e in pipeline.get_training_batch(len(pipeline))]
    second = [e.id for e in pipeline.get_training_batch(len(pipeline))]
    assert len(set(first)) == len(first)
    assert sorted(first) == sorted(second)
    assert first != second


def test_it_goes_on_with_the_exact_next_example() -> None:
    pipeline = _pipeline(curriculum=None)
    pipeline.get_training_batch(len(pipeline) + 37)
    state = json.loads(json.dumps(pipeline.state_dict()))
    expected = [e.id for e in pipeline.get_training_batch(50)]
    again = _pipeline()
    again.load_state_dict(state)
    assert [e.id for e in again.get_training_batch(50)] == expected


def test_a_curriculum_draws_from_its_tier_and_is_resumed_too() -> None:
    pipeline = _pipeline(curriculum="four_tier", roles=(Role.GENERATOR,))
    assert pipeline.curriculum is not None
    assert {e.task.tier for e in pipeline.get_training_batch(64)} == {0}
    name = pipeline.get_training_batch(1)[0].task.name
    for _ in range(200):
        outcome = Outcome(task=name, compiled=True, correct=True)
        pipeline.curriculum.record_outcome(outcome, task_tier=0)
    assert {e.task.tier for e in pipeline.get_training_batch(64)} == {0, 1}
    state = json.loads(json.dumps(pipeline.state_dict()))
    expected = [e.id for e in pipeline.get_training_batch(20)]
    again = _pipeline(curriculum="four_tier", roles=(Role.GENERATOR,))
    again.load_state_dict(state)
    assert [e.id for e in again.get_training_batch(20)] == expected


def test_it_opens_in_two_seconds_where_nothing_is_kept_yet(tmp_path: Path) -> None:
    """In a new process, as a script opens it; its imports are the script's."""
    code = (
        "import time\n"
        "from coding_framework.data.data_pipeline import CUDADataPipeline\n"
        "began = time.process_time()\n"
        "pipeline = CUDADataPipeline()\n"
        "print(len(pipeline.get_training_batch()), time.process_time() - began)\n"
    )
    environment = {**os.environ, "CUDA_RL_CACHE": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    batch, seconds = ran.stdout.split()
    assert int(batch) == 8
    assert float(seconds) <= 2.0 * max(1.0, machine_factor())


def test_tasks_are_those_of_its_examples(tmp_path: Path) -> None:
    examples = training_examples(Role.GENERATOR, 5)
    store = ExampleStore.write(tmp_path / "examples.jsonl", examples)
    pipeline = CUDADataPipeline(DataPipelineConfig(examples=str(store.path)))
    assert {t.name for t in pipeline.training_tasks()} == {e.task.name for e in examples}


def test_a_built_set_is_streamed_for_the_roles_asked_for(tmp_path: Path) -> None:
    examples = [
        *training_examples(Role.GENERATOR, 20),
        *training_examples(Role.OPTIMIZER, 10),
    ]
    store = ExampleStore.write(tmp_path / "examples.jsonl", examples)
    config = DataPipelineConfig(examples=str(store.path), roles=(Role.OPTIMIZER,))
    pipeline = CUDADataPipeline(config)
    assert len(pipeline) == 10
    assert {e.role for e in pipeline.get_training_batch(10)} == {Role.OPTIMIZER}


def test_evaluation_sets_by_kind_are_apart(tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    ExampleStore.write(file, training_examples(Role.GENERATOR, 5))
    config = DataPipelineConfig(scope="all", examples=str(file))
    pipeline = CUDADataPipeline(config, receipts=UNVERIFIED)
    families = pipeline.prepare_evaluation_set(20, "families")
    whole = {f.name for f in FAMILIES if f.held_out}
    assert {t.family for t in families} == whole
    compositions = pipeline.prepare_evaluation_set(40, "compositions")
    assert not {t.family for t in compositions} & whole
    shapes = pipeline.prepare_evaluation_set(20, "shapes")
    assert {t.split for t in (*families, *compositions, *shapes)} == {Split.HELD_OUT}
    assert all(t.name.endswith("@shapes") for t in shapes)


def test_the_evaluation_set_is_held_out() -> None:
    pipeline = _pipeline()
    assert {t.split for t in pipeline.prepare_evaluation_set(20)} == {Split.HELD_OUT}
    assert {e.task.split for e in pipeline.get_training_batch(200)} == {Split.TRAIN}


def test_a_state_of_other_data_is_a_usage_error() -> None:
    state = _pipeline(max_steps=1).state_dict()
    with pytest.raises(UsageError, match="same data configuration"):
        _pipeline().load_state_dict(state)


def test_the_loader_gives_whole_epochs_or_as_many_batches_as_asked_for() -> None:
    pipeline = _pipeline(batch_size=16)
    assert sum(1 for _ in CUDADataLoader(pipeline)) == -(-len(pipeline) // 16)
    batches = list(CUDADataLoader(pipeline, batches=3))
    assert [len(b) for b in batches] == [16, 16, 16]
    assert len(list(islice(CUDADataLoader(pipeline), 2))) == 2


def test_no_receipt_means_no_pipeline() -> None:
    with pytest.raises(UsageError, match="judge the kernels first"):
        CUDADataPipeline(DataPipelineConfig(max_steps=1), receipts={})


def test_tasks_of_the_easiest_tier_alone_are_drawn_and_shown() -> None:
    pipeline = _pipeline(max_steps=2, max_tier=0)
    drawn = pipeline.draw_tasks(12)
    assert {task.tier for task in drawn} == {0}
    assert {task.tier for task in pipeline.training_tasks()} == {0}
