"""A backend with a checker, as a GPU has the emulator: who judges which shape set, and what is done
where the checker cannot run a candidate. Here both devices are emulators."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coding_framework.cuda.emulator.backend import EmulatorBackend
from coding_framework.cuda.expected.reference import Expectation, ReferenceCache
from coding_framework.cuda.host.plan_recorder import instruction_budget
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.cuda.timing.backend import Equipment
from coding_framework.cuda.trial.verdict_draft import NOT_CHECKED
from coding_framework.types import Candidate, Status, Task, TestCase, Verdict
from corpus.collection import UNSEEN_ATTACKS
from corpus.seen_attacks import SEEN_ATTACKS
from corpus.seen_hardware import SEEN_HARDWARE
from support.judge_tasks import DOUBLE, DOUBLE_BODY, DOUBLE_KERNEL, DOUBLE_TASK, extension

pytestmark = pytest.mark.integration

LARGE = DOUBLE_TASK.cases[0].model_copy(
    update={
        "name": "gpu large",
        "inputs": tuple(
            spec.model_copy(update={"shape": (70, 90)}) for spec in DOUBLE_TASK.cases[0].inputs
        ),
    }
)
SMALL = [case.inputs[0].shape for case in DOUBLE_TASK.cases]
WITH_LARGE = DOUBLE_TASK.model_copy(update={"gpu_cases": (LARGE,)})
LOSES_THE_LAST = extension(DOUBLE_KERNEL, DOUBLE_BODY.replace(", n);", ", n - 1);"))
BY_THE_CHECKER = (
    "largest_with_shared_words_never_written",
    "reads_one_past_and_drops_it",
    "sum_from_a_variable_never_set",
    "writes_a_megabyte_further",
    "writes_back_the_canary_it_read",
    "zeroed_by_the_first_block",
)
"""Attacks that a GPU alone found correct: a read, a write or a race that changes nothing there."""


class Watched(EmulatorBackend):
    """An emulator that writes down the shapes that it was given."""

    def __init__(self, refuses: Status | None = None) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []
        self._refuses = refuses

    @contextmanager
    def equip(
        self, expectation: Expectation, timed: bool, elements: int = 0
    ) -> Iterator[Equipment]:
        self.shapes.append(tuple(expectation.inputs[0].shape))
        if self._refuses is not None:
            raise CandidateFault(self._refuses, "too much for it")
        with super().equip(expectation, timed, elements) as equipment:
            yield equipment


class WithChecker(Watched):
    """A device that also has shape sets of a size of its own, and is checked by another."""

    driver = "580.1"

    def __init__(self, checker: Watched) -> None:
        super().__init__()
        self.checker = checker

    def cases(self, task: Task) -> tuple[TestCase, ...]:
        return (*task.cases, *task.gpu_cases[:1])

    def timed_case(self, task: Task) -> TestCase:
        return task.gpu_cases[0] if task.gpu_cases else task.cases[0]


class JudgeOn(Judge):
    """A judge on a given backend."""

    def __init__(self, backend: WithChecker, *, small_shapes: bool = True) -> None:
        self._given = backend
        super().__init__(JudgeConfig(backend="emulator", seed=7, small_shapes=small_shapes))

    def _new_backend(self) -> WithChecker:
        return self._given


def judged(
    code: str, task: Task = WITH_LARGE, refuses: Status | None = None, *, small_shapes: bool = True
) -> tuple[Verdict, WithChecker, Watched]:
    checker = Watched(refuses)
    backend = WithChecker(checker)
    verdict = JudgeOn(backend, small_shapes=small_shapes).judge(
        task.model_copy(update={"naive_kernel": None}), Candidate(code=code)
    )
    return verdict, backend, checker


def test_the_checker_judges_what_is_not_of_real_size() -> None:
    verdict, backend, checker = judged(DOUBLE)
    assert verdict.correct, verdict.reason
    assert checker.shapes[:-1] == SMALL, "the last has sizes that are drawn"
    assert backend.shapes == [(70, 90)]
    declared = [test for test in verdict.tests if test.case != "drawn"]
    assert {test.shapes[0] for test in declared} == {*SMALL, (70, 90)}
    assert NOT_CHECKED not in {finding.rule for finding in verdict.pitfalls}
    assert verdict.receipt.driver == "580.1", "of the device, though the checker came last"


def test_without_small_shapes_the_real_size_alone_is_judged_and_the_verdict_says_so() -> None:
    verdict, backend, checker = judged(DOUBLE, small_shapes=False)
    assert verdict.correct, verdict.reason
    assert (checker.shapes, backend.shapes) == ([], [(70, 90)])
    assert verdict.timing is not None
    assert {test.shapes[0] for test in verdict.tests} == {(70, 90)}
    assert verdict.receipt.experiment_without == ("small_shapes",)
    assert verdict.reason.endswith("without small_shapes")
    wrong, _, _ = judged(LOSES_THE_LAST, small_shapes=False)
    assert wrong.status is Status.WRONG_OUTPUT
    whole, backend, _ = judged(DOUBLE, DOUBLE_TASK, small_shapes=False)
    assert whole.correct, whole.reason
    assert set(backend.shapes) == {SMALL[0]}, "a task without one of real size has them all"


def test_without_a_shape_set_of_real_size_the_timed_one_is_judged_by_both() -> None:
    verdict, backend, checker = judged(DOUBLE, DOUBLE_TASK)
    assert verdict.correct, verdict.reason
    assert checker.shapes[:-1] == SMALL, "the last has sizes that are drawn"
    assert backend.shapes == SMALL[:1]
    assert verdict.timing is not None


def test_what_the_checker_refuses_is_not_tried_again() -> None:
    verdict, backend, _ = judged(LOSES_THE_LAST)
    assert verdict.status is Status.WRONG_OUTPUT
    assert backend.shapes == []


@pytest.mark.parametrize("name", BY_THE_CHECKER)
def test_what_hardware_alone_does_not_show_is_refused_by_the_checker(name: str) -> None:
    attack = next(a for a in (*UNSEEN_ATTACKS, *SEEN_ATTACKS, *SEEN_HARDWARE) if a.name == name)
    verdict, backend, _ = judged(attack.code, attack.task)
    assert not verdict.correct
    assert backend.shapes == []


@pytest.mark.parametrize("refuses", [Status.UNSUPPORTED, Status.TIMEOUT])
def test_what_is_too_much_for_the_checker_is_judged_without_it_and_the_verdict_says_so(
    refuses: Status,
) -> None:
    verdict, backend, checker = judged(DOUBLE, refuses=refuses)
    assert verdict.correct, verdict.reason
    assert checker.shapes[:-1] == SMALL, "the last has sizes that are drawn"
    assert backend.shapes[:-1] == [*SMALL, (70, 90)]
    notes = [finding for finding in verdict.pitfalls if finding.rule == NOT_CHECKED]
    assert len(notes) == 1
    assert "too much for it" in notes[0].message


def test_a_wrong_kernel_fails_without_the_checker_too() -> None:
    verdict, backend, _ = judged(LOSES_THE_LAST, refuses=Status.UNSUPPORTED)
    assert verdict.status is Status.WRONG_OUTPUT
    assert backend.shapes == SMALL[:1]


def test_a_device_has_the_budget_of_the_largest_shape_set_that_is_called_on_it() -> None:
    task = DOUBLE_TASK
    small = ReferenceCache(b"secret").get(task, task.cases[-1], 0)
    for elements in (0, 100_000):
        with EmulatorBackend().equip(small, False, elements) as equipment:
            assert equipment.limits.instructions == instruction_budget(
                max(small.elements, elements)
            )


def test_a_kernel_that_is_endless_at_swept_sizes_alone_is_ended() -> None:
    told = " && ".join(f"n != {math.prod(shape)}" for shape in SMALL)
    endless = f"volatile bool on = true; while ({told} && on) {{}}"
    code = extension(
        DOUBLE_KERNEL.replace("if (i < n)", f"{endless}\n  if (i < n)", 1), DOUBLE_BODY
    )
    assert endless in code
    verdict = Judge(JudgeConfig(secret=b"swept")).judge(DOUBLE_TASK, Candidate(code=code))
    assert verdict.status is Status.TIMEOUT
    assert "did not end within" in verdict.reason
