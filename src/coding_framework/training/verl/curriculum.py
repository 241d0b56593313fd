"""A curriculum that draws RL's prompts, as verl's dataset. Runs in the trainer's process.

What is drawn for a step follows from the conversations of the steps before it, recorded in an order
of our own (theirs of ending is chance). The state goes into each checkpoint before its manifest, so
a resumed run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from verl.utils.dataset.rl_dataset import RLHFDataset

from coding_framework.data.curriculum_manager import CurriculumManager
from coding_framework.errors import TrainingError
from coding_framework.store.checkpoints import write_curriculum
from coding_framework.store.conversations import read_rollouts
from coding_framework.store.training_log import read_evidence
from coding_framework.training.verl.episode_spec import (
    SPEC_VARIABLE,
    EpisodeSpec,
    read_spec,
)
from coding_framework.types import Task


class Curriculum:
    """The manager with the steps that it has seen."""

    def __init__(self, tasks: list[Task], spec: EpisodeSpec) -> None:
        config = spec.config
        assert config.curriculum is not None, "this dataset is for runs with a curriculum"
        self.manager = CurriculumManager(tasks, config.curriculum, seed=config.seed)
        self._rollouts = Path(spec.rollouts_dir)
        self._seen = 0
        if config.task_evidence is not None:
            self.manager.learn(read_evidence(Path(config.task_evidence)))
        if spec.curriculum_state is not None:
            self._load(Path(spec.curriculum_state))

    def draw(self) -> str:
        """Name of the next prompt's task."""
        return self.manager.sample(1)[0].name

    def advance(self, step: int) -> None:
        """Record the conversations of the steps up to `step` that were not recorded yet."""
        for number in range(self._seen + 1, step + 1):
            ended = read_rollouts(self._rollouts, number)
            for rollout in sorted(ended, key=lambda r: (r.prompt, r.session)):
                self.manager.record(rollout.state)
        self._seen = max(self._seen, step)

    def save(self, checkpoint: Path) -> None:
        """Into the folder of a checkpoint that is not finished yet."""
        state = {
            "step": self._seen,
            "tiers": self.manager.tiers,
            "manager": self.manager.state_dict(),
        }
        write_curriculum(checkpoint, state)

    def _load(self, path: Path) -> None:
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            self.manager.load_state_dict(state["manager"])
            self._seen = int(state["step"])
        except (OSError, ValueError, KeyError) as e:
            raise TrainingError(
                f"{path} is no state of a curriculum ({type(e).__name__}): resume with the "
                "curriculum that the run was started with"
            ) from e


class CurriculumDataset(RLHFDataset):  # type: ignore[misc]
    """The file's tasks, one row each; row i is whatever the curriculum draws at the i-th fetch.

    verl fetches in its own process, right before a step (`data.dataloader_num_workers` is 0).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        spec: EpisodeSpec = read_spec(Path(os.environ[SPEC_VARIABLE]))
        found = [Task.model_validate_json(i["task"]) for i in self.dataframe["extra_info"]]
        self._row = {task.name: row for row, task in enumerate(found)}
        self._validates = any(i.get("validation") for i in self.dataframe["extra_info"])
        self._length = len(found) if self._validates else spec.config.prompts_in_file
        self.curriculum = Curriculum(found, spec)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, item: int) -> dict[str, Any]:
        if self._validates:
            plain: dict[str, Any] = super().__getitem__(item)
            return plain
        row: dict[str, Any] = super().__getitem__(self._row[self.curriculum.draw()])
        row["extra_info"] = {**row["extra_info"], "index": item}
        row["index"] = item
        return row
