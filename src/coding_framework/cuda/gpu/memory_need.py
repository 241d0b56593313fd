"""How much of a GPU's memory a shape set of real size takes: for turns, not as a limit."""

from __future__ import annotations

import math
from typing import Any

import torch

from coding_framework.cuda.expected.inputs import TORCH_DTYPES
from coding_framework.types import Task, TestCase

_AN_INPUT = 48
"""Bytes for each element of an input or a parameter: two draws, a perturbed and a float64 copy of
each, both places on the device, and the pool of the timed calls."""
_AN_OUTPUT = 96
"""Bytes for each element of an output: two draws of a float64 reference with its tolerance take up
to 80 on the way, the candidate and its kept outputs the rest."""


def needed_bytes(task: Task, case: TestCase) -> int:
    """What judging the task on this shape set takes at its peak, about: tensors between layers are
    not counted. Nothing is computed."""
    inputs = sum(math.prod(spec.shape) for spec in case.inputs)
    try:
        parameters, outputs = _counted(task, case)
    except Exception:  # a model that looks at values cannot be asked this way
        parameters, outputs = 0, inputs
    return _AN_INPUT * (inputs + parameters) + _AN_OUTPUT * outputs


def roughly_needed_bytes(task: Task) -> int:
    """The same for the largest shape set of a task whose code is not to be run here: as if outputs
    were as large as inputs."""
    inputs = [sum(math.prod(i.shape) for i in case.inputs) for case in task.gpu_cases]
    return (_AN_INPUT + _AN_OUTPUT) * max(inputs, default=0)


def _counted(task: Task, case: TestCase) -> tuple[int, int]:
    """Elements of the parameters and of the outputs."""
    namespace: dict[str, Any] = {"__name__": "task_reference"}
    exec(compile(task.reference, "<task reference>", "exec"), namespace)
    with torch.device("meta"), torch.no_grad():
        tensors = [torch.empty(s.shape, dtype=TORCH_DTYPES[s.dtype]) for s in case.inputs]
        model = namespace["Model"](*(case.init_args or task.init_args))
        result = model(*tensors)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    return sum(t.numel() for t in model.state_dict().values()), sum(t.numel() for t in outputs)
