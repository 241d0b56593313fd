"""How much of a GPU's memory a shape set of real size takes: for turns, not as a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from coding_framework.cuda.device.rough_need import AN_INPUT, AN_OUTPUT
from coding_framework.cuda.expected.reference import by_shapes
from coding_framework.cuda.expected.reference_facts import Memories
from coding_framework.reference_model import tensors_of
from coding_framework.types import Task, TestCase

_PASSING = 16
"""Bytes for each element of the largest operation that is neither an input nor an output: float64,
and as much for what the operation takes to compute it. A convolution with a minimum over its
channels took 18 GiB where 7 had been counted, and 17 judges filled an H200."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that a shape set of real size takes, about."""

    working: int
    """What judging it takes at its peak."""
    results: int
    """Results of all operations of one call of PyTorch's, which an answer with a kernel for each
    operation keeps as well."""


def memory_need(task: Task, case: TestCase) -> MemoryNeed:
    """From shapes alone: nothing is computed."""
    inputs = sum(math.prod(spec.shape) for spec in case.inputs)
    found = by_shapes(_counted, task, case)  # None: of a model that looks at values
    parameters, outputs, between = found or (0, inputs, Memories())
    passing = max(0, between.elements_at_once - inputs - parameters - outputs)
    kept = max(0, between.result_bytes - 4 * outputs)
    return MemoryNeed(
        AN_INPUT * (inputs + parameters) + AN_OUTPUT * outputs + max(_PASSING * passing, kept),
        between.result_bytes,
    )


def _counted(model: nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[int, int, Memories]:
    """Elements of the parameters and of the outputs, and what lies between."""
    with torch.no_grad(), Memories() as between:
        outputs = tensors_of(model(*inputs))
    parameters = sum(t.numel() for t in model.state_dict().values())
    return parameters, sum(t.numel() for t in outputs), between
