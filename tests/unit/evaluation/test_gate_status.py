"""Gates end to end of their expressions: what holds, fails, cannot be told or does not exist gives
its exit status and one sentence."""

from __future__ import annotations

import pytest

from coding_framework.commands.evaluate import _status
from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.eval_run import EvalIdentity
from coding_framework.evaluation.gates import check_gates, parse_gates
from coding_framework.evaluation.outcome import (
    EvalOutcome,
    gate_metrics,
    gate_scopes,
    number_of,
    summarize_run,
)
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.run.eval_options import EvalOptions
from support.made_conversations import make_task

pytestmark = pytest.mark.unit

RECORDS = [
    SampleRecord(
        suite="s", task=f"t{i}", tier=2 * (i % 2), level=1, family="unary", ops=1, status="correct",
        compiled=True, correct=True, speedup=1.5, basis="measured", holdout_status="correct",
        holdout_speedup=1.4,
    )
    for i in range(20)
]  # fmt: skip
TASKS = tuple(
    SuiteTask(task=make_task(r.task).model_copy(update={"tier": r.tier}), level=1) for r in RECORDS
)
SUITE = EvalSuite(name="s", tasks=TASKS)
IDENTITY = EvalIdentity(
    model="m", model_digest="d", suites={"s": "e"}, samples=1, turns=1, sampling={},
    prompts="v1", seed=0, judge={},
)  # fmt: skip
NUMBERS = (
    "pass@1", "pass@1:low", "pass@1:high", "compile", "cheats", "rejected", "fast_1", "fast_1:low",
    "regressions", "tier2.pass@1", "level1.fast_1", "family.unary.compile", "ops1.pass@1",
    "delta.pass@1",
)  # fmt: skip
KS, THRESHOLDS = [1, 5], [1.0]


@pytest.fixture(scope="module")
def outcome() -> EvalOutcome:
    return summarize_run(
        IDENTITY, [SUITE], RECORDS, KS, THRESHOLDS, complete=True, leak={}, unanswered={},
        compared=compare_runs(RECORDS, RECORDS),
    )  # fmt: skip


def status(outcome: EvalOutcome, expression: str) -> int:
    scopes = gate_scopes([SUITE], compares=True)
    gates = parse_gates(expression, gate_metrics(KS, THRESHOLDS), scopes)
    held = check_gates(gates, lambda g: number_of(g, outcome), complete=outcome.complete)
    return _status(outcome.model_copy(update={"gates": tuple(held)}), EvalOptions())


@pytest.mark.parametrize("number", NUMBERS)
def test_each_number_holds_and_fails_its_gate(
    outcome: EvalOutcome, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(outcome, f"{number}>=-1") == 0
    assert capsys.readouterr().err == ""
    assert status(outcome, f"{number}>=2") == 1
    [sentence] = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"cuda-rl: {number} >= 2 fails: it is ")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_is_none_is_wrong_use(outcome: EvalOutcome, number: str) -> None:
    scope, dot, metric = number.partition(":")[0].rpartition(".")
    with pytest.raises(UsageError, match=f"unknown metric 'no{metric}'"):
        status(outcome, f"{scope}{dot}no{metric}>=0")


@pytest.mark.parametrize("scope", ["", "tier2.", "level1.", "family.unary.", "delta."])
def test_a_number_that_cannot_be_told_fails_and_says_why(
    outcome: EvalOutcome, scope: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(outcome, f"{scope}pass@5>=0") == 1
    assert "fails: no value (" in capsys.readouterr().err


def test_a_run_that_stopped_early_leaves_what_fails_undecided(
    outcome: EvalOutcome, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = outcome.model_copy(update={"complete": False})
    assert status(stopped, "pass@1>=2, pass@1>=0.5") == 4
    assert "pass@1 >= 2 is undecided: samples are missing" in capsys.readouterr().err
