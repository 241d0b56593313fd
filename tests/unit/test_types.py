"""Results that cannot be cannot be built."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from coding_framework.types import (
    NOT_COMPILED,
    BenchmarkResult,
    CompilationResult,
    CompileSummary,
    ConversationTurn,
    CUDAConversationState,
    Extraction,
    Finding,
    Generation,
    RewardComponents,
    RewardPart,
    Role,
    Status,
    Task,
    TensorSpec,
    TestCase,
    TestResult,
    Verdict,
)
from support.made_conversations import make_comparison

pytestmark = pytest.mark.unit

FINDING = Finding(rule="stale_answer", severity="high", line=None, message="m", basis="run")


def timing(speedup_vs_naive: float = 2.0) -> BenchmarkResult:
    return BenchmarkResult(
        kernel_ms=1.0, kernel_ms_ci95=(1.0, 1.0), speedup_vs_naive=speedup_vs_naive, modelled=True
    )


def verdict(status: Status, **changes: Any) -> Verdict:
    """A possible verdict of that status, with `changes`."""
    fields: dict[str, Any] = {
        "status": status,
        "reason": "r",
        "task": "relu",
        "candidate_sha256": "0" * 64,
        "backend": "emulator",
        "compile": CompileSummary(),
    }
    if status is Status.CORRECT:
        fields["tests"] = (make_comparison(True),)
    if status is Status.WRONG_OUTPUT:
        fields["tests"] = (make_comparison(True), make_comparison(False))
    if status is Status.CHEATING:
        fields["cheats"] = (FINDING,)
    return Verdict(**{**fields, **changes})


def turn(index: int, judged: Verdict | None, masked: str | None = None) -> ConversationTurn:
    return ConversationTurn(
        index=index,
        role=Role.GENERATOR,
        prompt=(),
        generation=Generation(text=""),
        extraction=Extraction(code=None, note="none"),
        verdict=judged,
        masked=masked,
    )


def task() -> Task:
    case = TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),))
    return Task(
        name="relu",
        tier=0,
        family="unary",
        ops=("relu",),
        description="d",
        reference="r",
        cases=(case,),
    )


@pytest.mark.parametrize("status", list(Status))
def test_each_status_can_be_built_and_survives_json(status: Status) -> None:
    built = verdict(status)
    assert Verdict.model_validate_json(built.model_dump_json()) == built
    assert built.correct is (status is Status.CORRECT)
    assert built.compiled is (status not in NOT_COMPILED)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.CORRECT])
def test_only_a_correct_kernel_is_timed(status: Status) -> None:
    with pytest.raises(ValidationError, match="only a correct kernel is timed"):
        verdict(status, timing=timing())


@pytest.mark.parametrize("tests", [(), (make_comparison(False),)])
def test_a_correct_verdict_has_tests_that_all_passed(tests: tuple[TestResult, ...]) -> None:
    with pytest.raises(ValidationError, match="needs tests, all of them passed"):
        verdict(Status.CORRECT, tests=tests)


def test_a_correct_verdict_carries_no_evidence_of_cheating() -> None:
    with pytest.raises(ValidationError, match="evidence"):
        verdict(Status.CORRECT, cheats=(FINDING,))


def test_cheating_names_its_evidence() -> None:
    with pytest.raises(ValidationError, match="evidence"):
        verdict(Status.CHEATING, cheats=())


def test_a_wrong_output_has_a_failed_test() -> None:
    with pytest.raises(ValidationError, match="failed test"):
        verdict(Status.WRONG_OUTPUT, tests=(make_comparison(True),))


def test_records_are_frozen_and_refuse_unknown_keys() -> None:
    built = verdict(Status.CORRECT)
    with pytest.raises(ValidationError):
        built.status = Status.REJECTED  # type: ignore[misc]
    with pytest.raises(ValidationError, match=r"[Ee]xtra"):
        verdict(Status.CORRECT, score=1.0)


def test_a_compilation_succeeds_or_has_a_status() -> None:
    with pytest.raises(ValidationError):
        CompilationResult(success=False)
    with pytest.raises(ValidationError):
        CompilationResult(success=True, status=Status.COMPILE_ERROR, binary_path="/b")
    with pytest.raises(ValidationError, match="binary_path"):
        CompilationResult(success=True)


def test_a_turn_is_judged_or_masked() -> None:
    with pytest.raises(ValidationError, match="masked"):
        turn(0, None)
    assert turn(0, None, masked="the judge's worker was killed").verdict is None


def test_a_task_has_a_shape_set() -> None:
    with pytest.raises(ValidationError, match="no shape set"):
        Task.model_validate({**task().model_dump(), "cases": ()})


def test_log_probabilities_belong_to_response_tokens() -> None:
    with pytest.raises(ValidationError, match="log-probs"):
        Generation(text="", response_ids=(1, 2), logprobs=(0.0,))


def test_the_best_turn_is_the_fastest_correct_one() -> None:
    fast = verdict(Status.CORRECT, timing=timing(3.0))
    slow = verdict(Status.CORRECT, timing=timing(1.5))
    wrong = verdict(Status.WRONG_OUTPUT)
    turns = (turn(0, slow), turn(1, fast), turn(2, wrong), turn(3, None, masked="ours"))
    state = CUDAConversationState(conversation_id="c", task=task(), turns=turns)
    assert state.best_turn is turns[1]
    assert state.performance_trajectory == (1.5, 3.0, None, None)
    assert state.failed_attempts == (turns[2], turns[3])


def test_a_measured_speedup_counts_before_a_modelled_one() -> None:
    measured = timing(2.0).model_copy(update={"speedup": 1.2, "modelled": False})
    assert verdict(Status.CORRECT, timing=measured).speedup == 1.2
    assert verdict(Status.CORRECT, timing=timing(2.0)).speedup == 2.0
    assert verdict(Status.REJECTED).speedup is None


def test_a_reward_is_the_sum_of_its_parts() -> None:
    parts = tuple(
        RewardPart(name=n, value=v, limit=1.0, why="w") for n, v in (("a", 0.25), ("b", 0.5))
    )
    assert RewardComponents(preset="weighted", parts=parts).total == 0.75
