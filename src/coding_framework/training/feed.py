"""The tasks of an RL run, and its conversations told to the data that they came from.

The prompts are written as the file that verl reads, in the order they are trained on: a row is one
prompt of one step, and the file holds all steps, so that a rerun with the loader's stored position
goes on with the very next prompt.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic
from coding_framework.store.conversations import read_rollouts
from coding_framework.store.folder import RLFolder, rollouts_file
from coding_framework.training.rl_config import MultiTurnRLConfig
from coding_framework.training.verl.overrides import AGENT_LOOP
from coding_framework.types import Split, Task

if TYPE_CHECKING:
    from coding_framework.data.data_pipeline import CUDADataPipeline

DEFAULT_TASKS = 256
"""Most different tasks of a run that is given none, as in `run.recipe.Recipe.rl_tasks`."""


class Feed:
    """The tasks that a run draws its prompts from."""

    def __init__(
        self,
        config: MultiTurnRLConfig,
        tasks: Sequence[Task] | None = None,
        pipeline: CUDADataPipeline | None = None,
        validation: Sequence[Task] | None = None,
    ) -> None:
        """tasks: None: those of the pipeline. pipeline: None: the default one, where there are no
        tasks. validation: None: with `validate_every`, tasks of the pipeline that are none of the
        run's. Raises UsageError where there is no task, where two curricula contradict each other,
        or where a validation task is trained on."""
        self._config, self._pipeline = config, pipeline
        self._told = 0
        theirs = pipeline.config.curriculum if pipeline is not None else None
        if theirs is not None and theirs != config.curriculum:
            raise UsageError(
                f"the pipeline's curriculum is {theirs} and the run's {config.curriculum}: give "
                f"the run curriculum={theirs!r} too, by which it draws its prompts"
            )
        self.tasks = list(tasks) if tasks is not None else _tasks_of(config, pipeline)
        if not self.tasks:
            raise UsageError("no task to train on: give at least one training task")
        self.validation: list[Task] = []
        if config.validate_every:
            self.validation = self._validation_tasks(validation)

    def _validation_tasks(self, given: Sequence[Task] | None) -> list[Task]:
        count, trained = self._config.validation_tasks, {task.name for task in self.tasks}
        if given is not None:
            both = [task.name for task in given if task.name in trained]
            if both:
                raise UsageError(
                    f"{both[0]} is both a training and a validation task: what is trained on says "
                    "nothing of the policy"
                )
            return list(given)
        spare = [t for t in _source(self._config, self._pipeline) if t.name not in trained]
        if len(spare) < count:
            raise UsageError(
                f"{count} validation tasks were asked for, and training leaves {len(spare)} over: "
                "choose fewer --validation-tasks, or leave out --validate-every"
            )
        return spare[-count:]

    def prompts(self) -> list[Task]:
        """The prompts of the run in their order; with a curriculum its tasks, once. Raises
        UsageError for a task that is not for training."""
        config = self._config
        drawn = config.prompts_in_file if config.curriculum is None else len(self.tasks)
        return prompt_order(self.tasks, drawn, config.seed)

    def record(self, rollouts: Path, step: int) -> None:
        """Tell the pipeline of a step's conversations, in the order of their prompts; of each step
        once."""
        if self._pipeline is None or step <= self._told:
            return
        ended = read_rollouts(rollouts, step)
        for rollout in sorted(ended, key=lambda r: (r.prompt, r.session)):
            self._pipeline.record_training_result(rollout.state)
        self._told = step

    def record_earlier(self, run: RLFolder, done: int) -> None:
        """Tell it of the steps that earlier attempts have made."""
        if self._pipeline is None:
            return
        attempts = run.attempts()[::-1]
        for step in range(1, done + 1):
            folder = next(
                (a.rollouts for a in attempts if rollouts_file(a.rollouts, step).exists()), None
            )
            if folder is not None:
                self.record(folder, step)


def _source(config: MultiTurnRLConfig, pipeline: CUDADataPipeline | None) -> list[Task]:
    from coding_framework.data.data_pipeline import CUDADataPipeline, DataPipelineConfig

    return (pipeline or CUDADataPipeline(DataPipelineConfig(seed=config.seed))).training_tasks()


def _tasks_of(config: MultiTurnRLConfig, pipeline: CUDADataPipeline | None) -> list[Task]:
    wanted = config.num_episodes * config.prompts_per_step
    most = DEFAULT_TASKS if config.curriculum else min(wanted, DEFAULT_TASKS)
    return _source(config, pipeline)[:most]


def prompt_order(tasks: Sequence[Task], count: int, seed: int) -> list[Task]:
    """`count` tasks: whole passes over all tasks, each in a new random order.

    The first n of a longer order are the order of length n.

    Raises:
        UsageError: where there is no task, or one that is not for training.
    """
    if not tasks:
        raise UsageError("no task to train on: give at least one training task")
    wrong = [t.name for t in tasks if t.split is not Split.TRAIN]
    if wrong:
        raise UsageError(f"tasks {wrong[:3]} are not in the training split: leave them out")
    generator = random.Random(seed)
    order: list[Task] = []
    while len(order) < count:
        one_pass = list(tasks)
        generator.shuffle(one_pass)
        order.extend(one_pass)
    return order[:count]


def write_dataset(tasks: Sequence[Task], path: Path, *, validation: bool = False) -> None:
    """Write one row a task, in the order given. validation: nothing is learnt from them. The agents
    render the real prompt in the worker; verl's own `prompt` column only labels the row."""
    rows = (
        {
            "data_source": "cuda_kernels",
            "prompt": [{"role": "user", "content": task.name}],
            "ability": "code",
            "reward_model": {"style": "rule", "ground_truth": task.name},
            "agent_name": AGENT_LOOP,
            "extra_info": {
                "index": index,
                "task": task.model_dump_json(),
                "validation": validation,
            },
        }
        for index, task in enumerate(tasks)
    )
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows))
