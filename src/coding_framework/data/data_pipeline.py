"""The training data as a stream: batches of examples, an evaluation set, results fed back.

Guaranteed: the stream is a function of the configuration, the receipts and the recorded results;
after `load_state_dict` it goes on with the exact next example. The evaluation set is drawn from
held-out tasks, of which no batch ever holds one. Several pipelines may read at once: nothing is
written.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from coding_framework.data.curriculum_manager import CurriculumManager
from coding_framework.data.examples import (
    UNVERIFIED,
    Receipts,
    held_out_tasks,
    jobs_for,
    training_examples,
    training_tasks,
)
from coding_framework.errors import UsageError
from coding_framework.types import (
    CUDAConversationState,
    Record,
    Role,
    Task,
    TestCase,
    TrainingExample,
)

__all__ = [
    "UNVERIFIED",
    "CUDADataLoader",
    "CUDADataPipeline",
    "DataPipelineConfig",
    "TestCase",
    "TrainingExample",
    "held_out_tasks",
    "jobs_for",
    "training_examples",
    "training_tasks",
]


class DataPipelineConfig(Record):
    """What is streamed."""

    roles: tuple[Role, ...] = (Role.GENERATOR, Role.OPTIMIZER)
    """Whose examples, mixed as they come."""
    batch_size: int = Field(default=8, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    """Longest composition of a task; None: any."""
    styles: int = Field(default=1, ge=1)
    """Ways of writing each kernel; more than 1 needs receipts of one's own."""
    curriculum: str | None = None
    """Preset of the curriculum that chooses the tasks; None: all of them, in shuffled epochs."""
    seed: int = 0


class CUDADataPipeline:
    """Batches of examples, in shuffled epochs or as a curriculum draws their tasks."""

    def __init__(
        self, config: DataPipelineConfig | None = None, *, receipts: Receipts | None = None
    ) -> None:
        """receipts: as in `training_examples`. Raises UsageError where no example is left."""
        self.config = config or DataPipelineConfig()
        self._receipts = receipts
        self._examples = self._load()
        if not self._examples:
            raise UsageError("no training example has a receipt: judge the kernels first")
        self._by_task: dict[str, list[TrainingExample]] = {}
        for example in self._examples:
            self._by_task.setdefault(example.task.name, []).append(example)
        self.curriculum: CurriculumManager | None = None
        if self.config.curriculum is not None:
            tasks = [examples[0].task for examples in self._by_task.values()]
            self.curriculum = CurriculumManager(
                tasks, self.config.curriculum, seed=self.config.seed
            )
        self._served = 0
        self._order: list[int] = []

    def _load(self) -> list[TrainingExample]:
        config = self.config
        return [
            example
            for role in config.roles
            for example in training_examples(
                role,
                1 << 30,
                config.seed,
                max_steps=config.max_steps,
                styles=config.styles,
                receipts=self._receipts,
            )
        ]

    def __len__(self) -> int:
        """Examples of one epoch."""
        return len(self._examples)

    def get_training_batch(self, size: int | None = None) -> list[TrainingExample]:
        """The next `size` examples (default: the configured batch size). The stream is endless."""
        count = self.config.batch_size if size is None else size
        if self.curriculum is not None:
            drawn = self.curriculum.sample(count)
            batch = [self._pick(task, self._served + i) for i, task in enumerate(drawn)]
        else:
            batch = [self._at(self._served + i) for i in range(count)]
        self._served += count
        return batch

    def prepare_evaluation_set(self, n: int) -> list[Task]:
        """`n` held-out tasks, the same each time. Raises UsageError where there are fewer."""
        config = self.config
        return held_out_tasks(n, config.seed, max_steps=config.max_steps, receipts=self._receipts)

    def record_training_result(self, state: CUDAConversationState) -> None:
        """Tell the curriculum of a finished conversation; without one there is nothing to do."""
        if self.curriculum is not None:
            self.curriculum.record(state)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is, as JSON values."""
        curriculum = self.curriculum.state_dict() if self.curriculum is not None else None
        return {"served": self._served, "examples": len(self), "curriculum": curriculum}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken. Raises UsageError where the data is not the same."""
        if state["examples"] != len(self) or (state["curriculum"] is None) != (
            self.curriculum is None
        ):
            raise UsageError(
                f"the checkpoint streamed {state['examples']} examples and this pipeline has "
                f"{len(self)}: resume with the same data configuration"
            )
        self._served = state["served"]
        self._order = []
        if self.curriculum is not None:
            self.curriculum.load_state_dict(state["curriculum"])

    def _at(self, position: int) -> TrainingExample:
        epoch, offset = divmod(position, len(self._examples))
        if offset == 0 or not self._order:
            self._order = list(range(len(self._examples)))
            random.Random(f"{self.config.seed}:{epoch}").shuffle(self._order)
        return self._examples[self._order[offset]]

    def _pick(self, task: Task, position: int) -> TrainingExample:
        choices = self._by_task[task.name]
        return random.Random(f"{self.config.seed}:{position}").choice(choices)


class CUDADataLoader:
    """Iterates over a pipeline's batches: `batches` of them, or one epoch's."""

    def __init__(self, pipeline: CUDADataPipeline, batches: int | None = None) -> None:
        self._pipeline = pipeline
        size = pipeline.config.batch_size
        self._batches = -(-len(pipeline) // size) if batches is None else batches

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[TrainingExample]]:
        for _ in range(self._batches):
            yield self._pipeline.get_training_batch()
