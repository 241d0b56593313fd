"""Compares what a run left behind with what must come out: each comparison is a `TestResult`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from coding_framework.cuda.expected.reference import Expectation
from coding_framework.cuda.expected.tolerance import Comparison, ExpectedOutput, compare
from coding_framework.cuda.host.case_run import Execution, Output
from coding_framework.cuda.timing.backend import Equipment
from coding_framework.types import Task, TestCase, TestResult


class References(Protocol):
    """Where a trial gets what must come out (`ReferenceCache`)."""

    def get(self, task: Task, case: TestCase, seed: int) -> Expectation:
        """The expectation of one draw."""
        ...

    def steadier(self, task: Task, case: TestCase, seed: int) -> Expectation:
        """The same with a tolerance that owes nothing to luck: who is wrong by it is wrong."""
        ...

    def edges(self, task: Task, case: TestCase) -> tuple[int, ...]:
        """The seeds of the edge draws that decide something."""
        ...

    def of_other_inputs(
        self, task: Task, case: TestCase, seed: int, inputs: Sequence[torch.Tensor]
    ) -> torch.Tensor | None:
        """What the reference gives for them, in float64; None where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Comparing:
    """The draws of one shape set, and the device on which results lie."""

    task: Task
    case: TestCase
    references: References
    equipment: Equipment

    def expect(self, seed: int) -> Expectation:
        return self.references.get(self.task, self.case, seed)

    def test(self, expectation: Expectation, execution: Execution) -> TestResult:
        """Whether the outputs are right and the inputs as they were."""
        comparisons, detail = self._compare_all(expectation, execution)
        if any(not c.passed and c.tolerance is not None for c in comparisons):
            steadier = self.references.steadier(self.task, self.case, expectation.seed)
            if steadier is not expectation:
                comparisons, detail = self._compare_all(steadier, execution)
        worst = max(comparisons, key=lambda c: (not c.passed, c.share), default=None)
        passed = not detail and all(c.passed for c in comparisons)
        return TestResult(
            case=self.case.name,
            seed=expectation.seed,
            shapes=tuple(spec.shape for spec in self.case.inputs),
            dtype=self.case.inputs[0].dtype if self.case.inputs else "float32",
            max_abs_error=worst.max_abs_error if worst else None,
            max_rel_error=worst.max_rel_error if worst else None,
            tolerance=worst.tolerance if worst else None,
            passed=passed,
            detail=detail or (worst.detail if worst and not passed else ""),
        )

    def compare(self, output: Output, expected: ExpectedOutput) -> Comparison:
        return compare(output.tensor, output.strides, expected, self.equipment.find_worst)

    def _compare_all(
        self, expectation: Expectation, execution: Execution
    ) -> tuple[list[Comparison], str]:
        if execution.changed_input is not None:
            names = [spec.name for spec in self.case.inputs]
            i = execution.changed_input
            name = names[i] if i < len(names) else f"parameter {i - len(names)}"
            return [], f"the kernel changed its input {name!r}: inputs are read-only"
        got, wanted = execution.outputs, expectation.outputs
        if len(got) != len(wanted):
            return [], f"forward returned {len(got)} tensors, expected {len(wanted)}"
        comparisons: list[Comparison] = []
        for i, (output, expected) in enumerate(zip(got, wanted, strict=True)):
            with self.equipment.computing():
                comparison = self.compare(output, expected)
            if output.defect and comparison.passed:
                return comparisons, f"output {i}: {output.defect}"
            comparisons.append(comparison)
            if not comparison.passed and len(wanted) > 1:
                return comparisons, f"output {i}: {comparison.detail}"
        return comparisons, ""
