"""Whether a suite's tasks were in a model's training, as far as its card tells.

A card has no list of tasks. What it tells is that the weights were trained on ours, and our
training takes its tasks from one side of the split: a task of that side counts as seen, and so does
a problem from outside whose source is that of a task of that side.
"""

from __future__ import annotations

from coding_framework.data.audit import AuditReport, outside_overlap
from coding_framework.data.held_out_shapes import SUFFIX
from coding_framework.data.synthesis import catalog
from coding_framework.evaluation.suites import EvalSuite
from coding_framework.store.model_card import ModelCard
from coding_framework.types import Split, Task


def leak_statement(suite: EvalSuite, card: ModelCard | None) -> str:
    """ "none", "N tasks" or "unknown", with the reason."""
    if card is None or card.stage == "base" or card.trained_on is None:
        return (
            "unknown: no model_card.json says what the weights were trained on (--card FOLDER "
            "names it for a server's model and for answers)"
        )
    tasks = [entry.task for entry in suite.tasks]
    seen = sum(map(_of_training, tasks))
    outside = [task for task in tasks if task.split is Split.OUTSIDE]
    if outside:
        nothing = AuditReport(training=0, held_out=0, hits=(), neighbours=())
        seen += len(outside_overlap(nothing, outside).hits)
    if seen:
        return f"{seen} of {len(tasks)} tasks are functions that training may take"
    return "none: training takes its functions from the other side of the split"


def _of_training(task: Task) -> bool:
    """Whether the function is of the training side, whatever its shapes."""
    function = catalog.find(task.name.removesuffix(SUFFIX)) if task.name.endswith(SUFFIX) else None
    return (function or task).split is Split.TRAIN
