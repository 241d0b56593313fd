"""The draft becomes a verdict that can be, and whose JSON is the contract of `cuda-rl judge`."""

from __future__ import annotations

import json

import pytest

from coding_framework.cuda.judge import note_few_sizes
from coding_framework.cuda.plan.launch_plan import Fault
from coding_framework.cuda.trial.verdict_draft import VerdictDraft
from coding_framework.types import (
    BenchmarkResult,
    Candidate,
    CompilationResult,
    Diagnostic,
    Finding,
    KernelResources,
    Receipt,
    Status,
    Task,
    TensorSpec,
    TestCase,
)
from support.made_conversations import make_comparison

pytestmark = pytest.mark.unit

CASE = TestCase(name="main", inputs=(TensorSpec(name="x", shape=(4,)),))
TASK = Task(name="t", tier=0, family="f", ops=("x",), description="", reference="", cases=(CASE,))


def _draft() -> VerdictDraft:
    return VerdictDraft(TASK, Candidate(code="int x;"), "emulator", Receipt(seeds=(0,)))


def test_a_task_of_one_size_is_told_in_the_verdict() -> None:
    draft = _draft()
    note_few_sizes(draft)
    (note,) = draft.verdict(Status.REJECTED, "r").pitfalls
    assert note.rule == "few_sizes"
    assert "1 different shape set, 0 of them unseen" in note.message
    sizes = (TensorSpec(name="x", shape=(n,)) for n in (4, 5, 6))
    cases = tuple(TestCase(name=str(spec.shape), inputs=(spec,)) for spec in sizes)
    draft = _draft()
    draft.task = TASK.model_copy(update={"cases": cases})
    note_few_sizes(draft)
    assert draft.log.notes == []


def _correct() -> VerdictDraft:
    draft = _draft()
    draft.log.tests.append(make_comparison(True))
    draft.timing = BenchmarkResult(kernel_ms=1.0, kernel_ms_ci95=(1.0, 1.0), modelled=True)
    draft.counters = {"launches": 1.0}
    return draft


def test_the_json_has_the_fields_of_the_contract() -> None:
    fields = json.loads(_correct().verdict(Status.CORRECT, "fine").model_dump_json())
    assert set(fields) == {
        *("status", "reason", "task", "candidate_sha256", "backend", "compile", "tests", "timing"),
        *("counters", "safety", "pitfalls", "cheats", "receipt"),
    }
    assert {"seed", "shapes", "dtype", "max_abs_error", "max_rel_error", "tolerance", "passed"} <= (
        set(fields["tests"][0])
    )
    assert fields["timing"]["eager_ms"] is None
    assert fields["timing"]["modelled"] is True
    assert {"device", "driver", "toolkit", "versions", "clocks", "seeds", "sandbox"} <= set(
        fields["receipt"]
    )


def test_time_and_counters_of_a_wrong_kernel_are_dropped() -> None:
    draft = _correct()
    draft.log.tests.append(make_comparison(False))
    verdict = draft.verdict(Status.WRONG_OUTPUT, "off")
    assert verdict.timing is None
    assert verdict.counters == {}


def test_a_reason_is_one_bounded_line() -> None:
    verdict = _draft().verdict(Status.COMPILE_ERROR, "a\nb  c" + "x" * 5000)
    assert "\n" not in verdict.reason
    assert len(verdict.reason) <= 600


def test_what_the_compiler_said_is_summed_up() -> None:
    draft = _draft()
    draft.compilation = CompilationResult(
        success=True,
        binary_path="/b",
        registers=40,
        spill_bytes=16,
        kernels=(KernelResources(name="k", registers=40, spill_bytes=16),),
        warnings=(Diagnostic(severity="warning", line=3, message="unused"),),
    )
    verdict = draft.verdict(Status.RUNTIME_ERROR, "illegal address")
    assert verdict.compile is not None
    assert verdict.compile.warnings == ("line 3: unused",)
    assert [(p.rule, p.basis) for p in verdict.pitfalls] == [("register_spill", "compiler")]


def test_faults_of_a_run_and_evidence_are_carried() -> None:
    draft = _draft()
    draft.log.faults += [Fault("race", "k", 7, "t0", 4, 3, "two threads write s[0]")] * 2
    draft.log.cheats.append(
        Finding(rule="stale_answer", severity="high", line=None, message="m", basis="run")
    )
    verdict = draft.verdict(Status.CHEATING, "stale")
    assert [(p.rule, p.line) for p in verdict.pitfalls] == [("race", 7)]
    assert verdict.cheats[0].rule == "stale_answer"
