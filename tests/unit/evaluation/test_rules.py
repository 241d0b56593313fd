"""Published rules: what they change in a suite, what a summary tells, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coding_framework.cli import main
from coding_framework.commands.failures import EXIT_USAGE
from coding_framework.cuda.expected.rules import RULES
from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.eval_summary import summarize_samples
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.evaluation.suites import EvalSuite, SuiteTask, under_rules
from coding_framework.reference_model import is_in_tf32
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.evaluation import _that_time
from coding_framework.types import BaselineName, BaselinesName
from coding_framework.wiring import JudgeSettings
from support.judge_tasks import make_task

pytestmark = pytest.mark.unit
VERIFIED = RULES["kernelbench-verified"]


def suite(*numbers: int | None, level: int | None = 2) -> EvalSuite:
    entries = [
        SuiteTask(task=make_task(f"t{n}", "torch.relu(x)"), level=level, number=n) for n in numbers
    ]
    return EvalSuite(name="s", tasks=tuple(entries))


def test_published_rules_say_where_they_come_from() -> None:
    for rules in RULES.values():
        assert rules.libraries
        assert (len(rules.commit) == 40) == (rules.name != "ours")


def test_problems_that_the_rules_leave_out_do_not_count_and_the_others_are_in_tf32() -> None:
    found = under_rules(suite(22, 23, 80, 83, 84), VERIFIED)
    assert [entry.number for entry in found.tasks] == [22, 84]
    assert all(is_in_tf32(entry.task.reference) for entry in found.tasks)
    assert len(under_rules(suite(23, level=1), VERIFIED).tasks) == 1
    assert under_rules(suite(1, 2), RULES["ours"]) == suite(1, 2)


@pytest.mark.parametrize("wrong", [suite(None), suite(1, level=None)])
def test_a_suite_without_the_problems_is_refused(wrong: EvalSuite) -> None:
    with pytest.raises(UsageError, match="and the suite s has others"):
        under_rules(wrong, VERIFIED)


def test_a_suite_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(UsageError, match="leave out all problems of s"):
        under_rules(suite(23, 80), VERIFIED)


def test_rules_that_do_not_exist_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", "m", "--suite", "held-out:1", "--rules", "nobody", "--output-dir"]
    assert main([*command, str(tmp_path)]) == EXIT_USAGE
    assert "kernelbench-verified" in capsys.readouterr().err


def test_rules_say_samples_and_baseline_where_nobody_else_does() -> None:
    found = EvalOptions(rules="kernelbench-verified")
    assert (found.samples, found.baseline) == (5, "eager_tf32")
    assert EvalOptions(rules="kernelbench-verified", samples=1).samples == 1
    assert (EvalOptions().samples, EvalOptions().baseline) == (1, "eager")


@pytest.mark.parametrize(
    ("asked", "baseline", "taken"),
    [
        ("eager", "eager_tf32", "tf32"), ("compiled", "compiled_tf32", "all"),
        ("tf32", "compiled", "all"), ("none", "eager", "none"), ("eager", "naive", "eager"),
        ("max-autotune", "compiled", "max-autotune"),
    ],
)  # fmt: skip
def test_the_times_that_speedups_are_over_are_taken(
    asked: BaselinesName, baseline: BaselineName, taken: BaselinesName
) -> None:
    assert _that_time(baseline, JudgeSettings(baselines=asked)).baselines == taken


def record(task: str, status: str = "correct", *, by: bool | None = True, **more) -> SampleRecord:  # type: ignore[no-untyped-def]
    correct = status == "correct" and by is not False
    return SampleRecord(
        task=task, status=status, correct=correct, by_rules=by, rules="kernelbench-verified", **more
    )


def test_answers_that_one_of_both_refuses_are_named() -> None:
    records = [
        record("both"),
        record("strict", "wrong_output", reason="too far"),
        record("shift", by=False, by_rules_reason="inputs times 3: wrong"),
        record("overflow", by=None, by_rules_reason="nothing can be compared"),
        record("neither", "wrong_output", by=False),
    ]
    block = summarize_samples(records, [1], [1.0])
    found = block.by_rules
    assert found is not None
    assert (found.theirs.count, found.theirs.n, found.ours.count, found.ours.n) == (2, 4, 3, 5)
    assert found.refused_by_us == ("strict/0: wrong_output (too far)",)
    assert found.refused_by_them == ("shift/0: inputs times 3: wrong",)
    assert found.not_compared == ("overflow/0: nothing can be compared",)
    assert block.pass_at["pass@1"].value == 0.4  # both and overflow
    assert summarize_samples([SampleRecord(task="t")], [1], [1.0]).by_rules is None


def test_results_of_two_rule_sets_are_not_compared() -> None:
    ours = [SampleRecord(task="t", status="correct", correct=True)]
    with pytest.raises(UsageError, match="the rules kernelbench-verified and ours, which call"):
        compare_runs(ours, [record("t")])


def test_the_strongest_baseline_and_the_memory_are_told() -> None:
    times = {"eager_ms": 2.0, "eager_tf32_ms": 1.0, "kernel_ms": 1.0, "speedup": 1.0}
    records = [
        record("a", **times, memory=2.0, sample=0), record("a", "timeout", by=False, sample=1),
        record("b", **times, memory=0.5, sample=0), record("b", **times, memory=0.5, sample=1),
    ]  # fmt: skip
    [speeds] = summarize_samples(records, [1, 2], [0.5], curves=True).speeds
    assert speeds.strongest == "eager_tf32"
    assert {name: e.value for name, e in speeds.over.items()} == {"eager": 2.0, "eager_tf32": 1.0}
    assert speeds.memory is not None
    assert speeds.memory.value == pytest.approx(1.0)
    shares = {
        c.p: (c.value, best.value) for c, best in zip(speeds.curve, speeds.best_curve, strict=True)
    }
    assert shares[0.5] == (0.75, 1.0)


def test_rules_stand_in_the_results() -> None:
    told = json.loads(VERIFIED.model_dump_json())
    assert told["source"].endswith("facebookresearch/kernel_bench_verified")
    assert told["left_out"] == {"2": [23, 80, 83]}
