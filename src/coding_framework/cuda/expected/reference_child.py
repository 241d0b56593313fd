"""What runs a caller's reference inside its sandbox (`reference_sandbox`). It learns no secret:
inputs come with the request, and parameters from a seed in it."""

from __future__ import annotations

from coding_framework.cuda.expected.reference import computed
from coding_framework.cuda.expected.reference_wire import packed_outputs, unpacked
from coding_framework.types import Task, TestCase


def answer(request: bytes) -> bytes:
    """What must come out of a request's inputs. Raises UsageError where the reference fails."""
    told, inputs = unpacked(request)
    found = computed(
        Task.model_validate(told["task"]), TestCase.model_validate(told["case"]),
        told["seed"], tuple(inputs), told["weights"], told["runs"],
    )  # fmt: skip
    return packed_outputs(found.signature, found.parameters, found.outputs)
