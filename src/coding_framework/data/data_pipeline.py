"""The training data as a stream: batches of examples, an evaluation set, results fed back.

`examples` draws what is streamed here, `example_store` keeps it in a file.

Guaranteed: the stream is a function of the configuration, the receipts and the recorded results;
after `load_state_dict` it goes on with the exact next example. The evaluation set is drawn from
held-out tasks, of which no batch ever holds one. The examples of a built set are read from its file
as they are asked for; others are drawn when the first one is.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from coding_framework.data.curriculum_manager import CurriculumManager
from coding_framework.data.example_store import Entry, ExampleStore
from coding_framework.data.examples import (
    Receipts,
    Selection,
    held_out_tasks,
    training_examples,
    training_tasks,
)
from coding_framework.data.held_out_shapes import with_held_out_shapes
from coding_framework.data.synthesis.catalog import FAMILIES
from coding_framework.errors import UsageError
from coding_framework.types import (
    CUDAConversationState,
    GeneratorTarget,
    Record,
    Role,
    Task,
    TaskScope,
    TestCase,
    TrainingExample,
)

__all__ = [
    "CUDADataLoader",
    "CUDADataPipeline",
    "CUDATrainingExample",
    "DataPipelineConfig",
    "TestCase",
    "TrainingExample",
]

CUDATrainingExample = TrainingExample
"""The documents' other name of it."""


class DataPipelineConfig(Record):
    """What is streamed."""

    roles: tuple[Role, ...] = (Role.GENERATOR, Role.OPTIMIZER)
    """Whose examples, mixed as they come."""
    batch_size: int = Field(default=8, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    """Longest composition of a task; None: any."""
    max_tier: int | None = Field(default=None, ge=0)
    """Hardest tier of a task's family; None: any."""
    scope: TaskScope = "starter"
    """Which tasks; as in `training_examples`."""
    generator_target: GeneratorTarget = "naive"
    """Which kernel the generator is shown, where `examples` is None; as in `training_examples`."""
    examples: str | None = None
    """File of a built set (`cuda-rl data build-sft`); None: the examples of `training_examples`."""
    curriculum: str | None = None
    """Preset of the curriculum that chooses the tasks; None: all of them, in shuffled epochs."""
    seed: int = 0


EvaluationKind = Literal["compositions", "families", "shapes"]


class CUDADataPipeline:
    """Batches of examples, in shuffled epochs or as a curriculum draws their tasks."""

    def __init__(
        self, config: DataPipelineConfig | None = None, *, receipts: Receipts | None = None
    ) -> None:
        """receipts: as in `training_examples`. Examples are drawn when they are first asked for;
        those that are handed over are looked at here. Raises UsageError where none is left."""
        self.config = config or DataPipelineConfig()
        self._receipts = receipts
        if receipts is not None or self.config.examples is not None:
            len(self)
        self.curriculum: CurriculumManager | None = None
        if self.config.curriculum is not None:
            tasks = [self._examples[numbers[0]].task for numbers in self._by_task.values()]
            self.curriculum = CurriculumManager(
                tasks, self.config.curriculum, seed=self.config.seed
            )
        self._served = 0
        self._order: list[int] = []

    @cached_property
    def _entries(self) -> list[tuple[int, Entry]]:
        """(number, entry) of its examples."""
        found = self._examples
        known = (
            found.entries
            if isinstance(found, ExampleStore)
            else [Entry(e.id, e.task.name, e.role) for e in found]
        )
        entries = [(i, entry) for i, entry in enumerate(known) if entry.role in self.config.roles]
        if not entries:
            raise UsageError("no training example has a receipt: judge the kernels first")
        return entries

    @cached_property
    def _by_task(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, entry in self._entries:
            found.setdefault(entry.task, []).append(number)
        return found

    @cached_property
    def _digest(self) -> str:
        text = "\n".join(entry.id for _, entry in self._entries)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def _examples(self) -> Sequence[TrainingExample] | ExampleStore:
        """A built set, or the drawn examples: all that there are, in the order of their tasks."""
        config = self.config
        if config.examples is not None:
            return ExampleStore(Path(config.examples))
        drawn = (
            training_examples(
                role, 1 << 30, config.seed, target=config.generator_target, **self._which
            )
            for role in config.roles
        )
        return [e for found in drawn for e in sorted(found, key=lambda e: e.task.name)]

    @property
    def _which(self) -> Selection:
        config = self.config
        return {
            "max_steps": config.max_steps,
            "max_tier": config.max_tier,
            "receipts": self._receipts,
            "scope": config.scope,
        }

    def __len__(self) -> int:
        """Examples of one epoch."""
        return len(self._entries)

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

    def training_tasks(self) -> list[Task]:
        """The tasks of its examples, for RL, in an order drawn by the seed."""
        numbers = [first for first, *_ in self._by_task.values()]
        random.Random(f"{self.config.seed}:tasks").shuffle(numbers)
        return [self._examples[number].task for number in numbers]

    def draw_tasks(self, n: int, *, min_steps: int = 0) -> list[Task]:
        """The first `n` training tasks of the seed, as evenly over the families as there are tasks:
        what the root scripts train on. No example is drawn. Raises UsageError where there are
        fewer."""
        return training_tasks(n, self.config.seed, min_steps=min_steps, **self._which)

    def prepare_evaluation_set(self, n: int, kind: EvaluationKind = "compositions") -> list[Task]:
        """`n` held-out tasks, the same each time. Raises UsageError where there are fewer.

        kind: compositions of operations that occur in training in other compositions; families of
        which no member is trained on (scope "all"); or tasks of training at shapes that are not.
        """
        whole = {f.name for f in FAMILIES if f.held_out}
        which = self._which
        if kind == "shapes":
            return [with_held_out_shapes(task) for task in self.draw_tasks(n)]
        if kind == "families":
            which["scope"] = "all"
        drawn = held_out_tasks(None, self.config.seed, **which)
        found = [task for task in drawn if (task.family in whole) == (kind == "families")]
        if len(found) < n:
            raise UsageError(
                f"{n} held-out tasks were asked for; {len(found)} have a judged kernel: judge more "
                "with `cuda-rl tasks build`"
            )
        return found[:n]

    def record_training_result(self, state: CUDAConversationState) -> None:
        """Tell the curriculum of a finished conversation; without one there is nothing to do."""
        if self.curriculum is not None:
            self.curriculum.record(state)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is, as JSON values."""
        curriculum = self.curriculum.state_dict() if self.curriculum is not None else None
        return {
            "served": self._served,
            "examples": len(self),
            "digest": self._digest,
            "curriculum": curriculum,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken. Raises UsageError where the data is not the same."""
        same_kind = (state["curriculum"] is None) == (self.curriculum is None)
        if state["digest"] != self._digest or not same_kind:
            raise UsageError(
                f"the checkpoint streamed {state['examples']} examples ({state['digest']}) and "
                f"this pipeline has {len(self)} ({self._digest}): resume with the same data "
                "configuration"
            )
        self._served = state["served"]
        self._order = []
        if self.curriculum is not None:
            self.curriculum.load_state_dict(state["curriculum"])

    def _at(self, position: int) -> TrainingExample:
        epoch, offset = divmod(position, len(self))
        if offset == 0 or not self._order:
            self._order = [number for number, _ in self._entries]
            random.Random(f"{self.config.seed}:{epoch}").shuffle(self._order)
        return self._examples[self._order[offset]]

    def _pick(self, task: Task, position: int) -> TrainingExample:
        choices = self._by_task[task.name]
        return self._examples[random.Random(f"{self.config.seed}:{position}").choice(choices)]


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
