"""`ReferenceSandbox`: references of callers, each in a process of its own in a sandbox.

Guaranteed: the reference sees the inputs of its own task and no secret; it changes nothing outside
its process, which ends with the task; what it says is read as bounded numbers. Its tolerance is
computed in that process too: a caller says what is right for its own task, and for no other.
"""

from __future__ import annotations

import torch

from coding_framework.cuda.expected.reference import Expectation, computed, task_digest
from coding_framework.cuda.expected.reference_wire import (
    packed,
    packed_outputs,
    unpacked,
    unpacked_outputs,
)
from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.sandbox import Sandbox
from coding_framework.cuda.sandbox.python_child import PythonChild
from coding_framework.errors import UsageError
from coding_framework.types import Task, TestCase

_ANSWER = "coding_framework.cuda.expected.reference_sandbox:answer"
_MOST_BYTES = 256 << 20


def answer(request: bytes) -> bytes:
    """In the sandbox: what must come out of a request's inputs. It learns no secret: inputs come
    with the request, and parameters from a seed in it. Raises UsageError where the reference
    fails."""
    told, inputs = unpacked(request)
    found = computed(
        Task.model_validate(told["task"]), TestCase.model_validate(told["case"]),
        told["seed"], tuple(inputs), told["weights"], told["runs"],
    )  # fmt: skip
    return packed_outputs(found.signature, found.parameters, found.outputs)


class ReferenceSandbox:
    """A `Compute` for tasks of callers. For one thread."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Raises UsageError for a sandbox that shuts too little out."""
        self._child = PythonChild(sandbox, _ANSWER)
        self._digest = ""

    def __call__(
        self, task: Task, case: TestCase, seed: int, inputs: tuple[torch.Tensor, ...],
        weights: int, runs: int,
    ) -> Expectation:  # fmt: skip
        """See Compute. Raises UsageError where the reference fails, in its own words."""
        digest = task_digest(task)
        if digest != self._digest:  # nothing of one caller's is left for the next
            self._child.stop()
            self._digest = digest
        told = {
            "task": task.model_dump(mode="json"), "case": case.model_dump(mode="json"),
            "seed": seed, "weights": weights, "runs": runs,
        }  # fmt: skip
        answer = self._child.ask(packed(told, inputs), most_bytes=_MOST_BYTES)
        try:
            names, parameters, outputs = unpacked_outputs(answer)
        except UsageError:
            self.stop()
            raise
        init_args = case.init_args or task.init_args
        signature = ModelSignature(init_args, names, task.scalar_positions)
        return Expectation(seed, inputs, parameters, signature, outputs, runs)

    def stop(self) -> None:
        """End its process."""
        self._child.stop()
        self._digest = ""
