"""The tasks of an RL run, and its conversations told to the pipeline that they came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.data.data_pipeline import CUDADataPipeline, DataPipelineConfig
from coding_framework.data.example_store import ExampleStore
from coding_framework.data.examples import training_examples
from coding_framework.errors import UsageError
from coding_framework.store.conversations import append_rollout
from coding_framework.store.folder import RLFolder
from coding_framework.store.records import Rollout
from coding_framework.training.feed import Feed
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.types import Role, Status
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit


@pytest.fixture
def pipeline(tmp_path: Path) -> CUDADataPipeline:
    examples = training_examples(Role.GENERATOR, 6, max_steps=1)
    store = ExampleStore.write(tmp_path / "examples.jsonl", examples)
    return CUDADataPipeline(
        DataPipelineConfig(examples=str(store.path), curriculum="three_tier", batch_size=2)
    )


def config(**changes: object) -> MultiTurnRLConfig:
    return MultiTurnRLConfig.cpu(num_episodes=1, compute_dtype="float32", **changes)


def test_a_pipeline_is_told_of_every_conversation_once(
    tmp_path: Path, pipeline: CUDADataPipeline
) -> None:
    feed = Feed(config(curriculum="three_tier"), None, pipeline)
    names = {entry.task for _, entry in pipeline._entries}
    assert {task.name for task in feed.tasks} <= names
    run = RLFolder(tmp_path / "run")
    for step in (1, 2):
        for session in (0, 1):
            state = make_state(make_turn(0, make_verdict(Status.CORRECT, 1.0)))
            state = state.model_copy(
                update={"task": feed.tasks[0], "conversation_id": f"{step}-{session}"}
            )
            rollout = Rollout(step=step, group="g", session=session, state=state, returns=(1.0,))
            append_rollout(run.root / "attempts" / "000" / "rollouts", rollout)
    feed.record_earlier(run, 1)
    assert pipeline.curriculum is not None
    assert pipeline.curriculum.state_dict()["episodes"] == 2
    for _ in range(2):
        feed.record(run.root / "attempts" / "000" / "rollouts", 2)
    assert pipeline.curriculum.state_dict()["episodes"] == 4


def test_tasks_that_are_missing_and_curricula_that_differ_are_refused(
    pipeline: CUDADataPipeline,
) -> None:
    with pytest.raises(UsageError, match="no task to train on"):
        Feed(config(), [])
    with pytest.raises(UsageError, match="the pipeline's curriculum is three_tier and the run's"):
        Feed(config(), None, pipeline)
    assert Feed(config(), [make_task()], None).prompts()[0].name == "relu"
