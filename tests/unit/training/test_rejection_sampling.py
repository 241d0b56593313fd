"""Which of a policy's own kernels are learnt, and what its samples say of a task."""

from __future__ import annotations

import pytest

from coding_framework.run.rejection_options import RejectionOptions
from coding_framework.training.rejection_sampling import select
from coding_framework.types import (
    BenchmarkResult,
    CompileSummary,
    CUDAConversationState,
    Role,
    Status,
    Verdict,
)
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit
RULE = RejectionOptions()


def timed(ms: float | None, device_code: str, *, correct: bool = True) -> Verdict:
    timing = None
    if ms is not None and correct:
        timing = BenchmarkResult(
            kernel_ms=ms, kernel_ms_ci95=(ms, ms), speedup_vs_naive=1.0 / ms, modelled=True
        )
    changes = {"compile": CompileSummary(ptx_sha256=device_code), "timing": timing}
    return make_verdict(Status.CORRECT if correct else Status.WRONG_OUTPUT).model_copy(
        update=changes
    )


def answers(*verdicts: Verdict) -> list[CUDAConversationState]:
    return [
        make_state(make_turn(0, verdict, code=f"code {i}"), name=f"c{i}")
        for i, verdict in enumerate(verdicts)
    ]


def test_fast_correct_kernels_with_other_device_code_are_kept() -> None:
    states = answers(
        timed(1.0, "a"), timed(1.05, "b"), timed(1.2, "slow"), timed(1.0, "a"),
        timed(0.5, "wrong", correct=False),
    )  # fmt: skip
    chosen = select(states, RULE)
    assert [example.code for example in chosen.examples] == ["code 0", "code 1"]
    assert {(e.role, e.kind) for e in chosen.examples} == {(Role.GENERATOR, "generate")}
    all_speeds = select(states, RejectionOptions(least_speed=0.0))
    assert [e.code for e in all_speeds.examples] == ["code 0", "code 1", "code 2"]
    assert len(select(states, RejectionOptions(keep_per_task=1)).examples) == 1


def test_the_evidence_counts_first_answers_and_leaves_out_our_faults() -> None:
    masked = make_state(make_turn(0, None, masked="the judge died"), name="m")
    states = [*answers(timed(2.0, "a"), timed(4.0, "b"), timed(1.0, "c", correct=False)), masked]
    (found,) = select(states, RULE).evidence
    assert (found.task, found.samples, found.solved) == ("relu", 3, 2)
    assert (found.best_ms, found.median_ms, found.spread) == (2.0, 3.0, 1.5)


def test_a_task_that_nobody_solved_is_evidence_too() -> None:
    chosen = select(answers(timed(1.0, "a", correct=False)), RULE)
    assert chosen.examples == ()
    assert (chosen.evidence[0].solved, chosen.evidence[0].spread) == (0, 1.0)


def test_own_repairs_and_improvements_answer_the_turn_before_them() -> None:
    wrong, right = timed(1.0, "a", correct=False), timed(2.0, "b")
    repaired = make_state(make_turn(0, wrong, code="w"), make_turn(1, right, code="r"), name="1")
    faster = make_state(
        make_turn(0, timed(2.1, "c"), code="s"), make_turn(1, timed(1.95, "d"), code="f"), name="2"
    )
    slower = make_state(
        make_turn(0, timed(1.96, "e"), code="t"), make_turn(1, timed(1.99, "f"), code="u"), name="3"
    )
    chosen = {e.kind: e for e in select([repaired, faster, slower], RULE).examples}
    assert (chosen["repair"].previous_code, chosen["repair"].code) == ("w", "r")
    assert chosen["repair"].previous_verdict == wrong
    assert (chosen["optimize"].previous_code, chosen["optimize"].code) == ("s", "f")
    assert chosen["optimize"].role is Role.OPTIMIZER
    assert all(e.code != "u" for e in chosen.values()), "a slower kernel improves nothing"


def test_the_choice_does_not_depend_on_the_order_of_the_samples() -> None:
    states = answers(*(timed(1.0 + i / 100, f"k{i}") for i in range(7)))
    assert select(states, RULE) == select(states[::-1], RULE)
