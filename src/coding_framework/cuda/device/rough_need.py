"""How much of a GPU's memory a task takes, by its shapes alone: no code of the task is run."""

from __future__ import annotations

import math

from coding_framework.types import Task

AN_INPUT = 48
"""Bytes for each element of an input or a parameter: two draws, a perturbed and a float64 copy of
each, both places on the device, and the pool of the timed calls."""
AN_OUTPUT = 96
"""Bytes for each element of an output: two draws of a float64 reference with its tolerance take up
to 80 on the way, the candidate and its kept outputs the rest."""


def roughly_needed_bytes(task: Task) -> int:
    """Bytes for the largest shape set of real size, as if outputs were as large as inputs; 0 where
    there is none."""
    inputs = [sum(math.prod(i.shape) for i in case.inputs) for case in task.gpu_cases]
    return (AN_INPUT + AN_OUTPUT) * max(inputs, default=0)
