"""The run's prompts in the order they are trained on, as the file that verl reads.

One row is one prompt of one step; the file holds all steps, so that a rerun with the loader's
stored position goes on with the very next prompt. The real prompt is rendered by the agents in the
worker; verl's own `prompt` column only labels the row.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic
from coding_framework.training.verl.overrides import AGENT_LOOP
from coding_framework.types import Split, Task


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
    """Write one row a task, in the order given. validation: nothing is learnt from them."""
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
